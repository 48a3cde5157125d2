"""What a signature is over, byte for byte, and everything that makes it worth nothing."""

import json
import subprocess
import sys
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)

from tests.client.scripted import Scripted, answer
from tests.domain.manifests import LOADED, manifest
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge.client import Client
from trtforge.contract.failures import CODES
from trtforge.contract.provenance import manifest_digest, pae
from trtforge.signature import KeyUnusable, PublicKeys, SignatureRefused, Signer, new_key

PRIVATE, PUBLIC = new_key()
OTHER_PRIVATE, OTHER_PUBLIC = new_key()
ENGINE = manifest(MODEL, SPEC, TARGET)
RAW = ENGINE.model_dump_json().encode()
SIGNED = Signer(PRIVATE.encode()).sign(ENGINE)


def refused(signature: bytes | None, raw: bytes = RAW, keys: str = PUBLIC) -> str:
    with pytest.raises(SignatureRefused) as caught:
        PublicKeys.read(keys).check(signature, raw)
    assert caught.value.code in CODES
    assert caught.value.remedy in str(caught.value)
    return caught.value.code


def resigned(change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return an envelope whose statement was changed and signed again with the right key."""
    envelope = json.loads(SIGNED)
    statement = json.loads(b64decode(envelope["payload"]))
    change(statement)
    return enveloped(json.dumps(statement).encode(), envelope["payloadType"])


def enveloped(payload: bytes, kind: str) -> bytes:
    sig = Signer(PRIVATE.encode())._key.sign(pae(kind, payload))
    signatures = [{"keyid": "", "sig": b64encode(sig).decode()}]
    return json.dumps({"payload": b64encode(payload).decode(), "payloadType": kind, "signatures": signatures}).encode()


def test_the_bytes_under_a_signature_are_those_of_the_specification():
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == expected
    assert pae("é", b"") == "DSSEv1 2 é 0 ".encode()  # lengths count bytes


def test_any_ed25519_library_verifies_it():
    envelope = json.loads(SIGNED)
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    payload = b64decode(envelope["payload"])
    [signature] = envelope["signatures"]
    key: Any = load_pem_public_key(PUBLIC.encode())
    message = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    key.verify(b64decode(signature["sig"]), message)


def test_the_statement_names_plan_manifest_and_how_it_was_made():
    statement = json.loads(b64decode(json.loads(SIGNED)["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    digests = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
    assert digests == {"plan": ENGINE.plan.digest[7:], "manifest.json": manifest_digest(RAW)[7:]}
    definition = statement["predicate"]["buildDefinition"]
    asked = definition["externalParameters"]
    assert (asked["engine_key"], asked["model"]) == (ENGINE.engine_key, MODEL)
    assert asked["target"] == TARGET.model_dump(mode="json")
    assert asked["spec"] == SPEC.model_dump(mode="json")
    assert definition["internalParameters"] == {"plan_size": ENGINE.plan.size}
    assert definition["resolvedDependencies"] == [{"name": "model.onnx", "digest": {"sha256": MODEL[7:]}}]
    assert statement["predicate"]["runDetails"]["builder"]["version"]["tensorrt_rtx"] == TARGET.builder_version


def test_a_good_signature_names_its_key_among_several():
    keys = PublicKeys.read([OTHER_PUBLIC, PUBLIC])
    signer = Signer(PRIVATE.encode())
    assert keys.check(SIGNED, RAW) == signer.public.keyid
    assert PublicKeys.read(OTHER_PUBLIC + PUBLIC).check(SIGNED, RAW) == signer.public.keyid  # two in one file
    assert signer.sign(ENGINE) == SIGNED
    envelope = json.loads(SIGNED)
    envelope["signatures"].insert(0, {"sig": b64encode(b"another's").decode()})
    envelope["payload"] = urlsafe_b64encode(b64decode(envelope["payload"])).decode()
    envelope["more"] = 1
    assert keys.check(json.dumps(envelope).encode(), RAW) == signer.public.keyid


def test_order_space_and_nulls_of_a_manifest_do_not_count_and_everything_else_does():
    value = json.loads(RAW)
    turned = dict(reversed(value.items())) | {"a_later_field": None}
    assert PublicKeys.read(PUBLIC).check(SIGNED, json.dumps(turned, indent=4).encode())
    for field in value:
        if value[field] is None:
            continue
        changed = json.dumps(value | {field: {"other": 1}}).encode()
        assert manifest_digest(changed) != manifest_digest(RAW)


def test_a_loaded_engine_is_signed_with_what_it_said_and_read_by_who_knows_nothing_of_it():
    loaded = manifest(MODEL, SPEC, TARGET, loaded=LOADED, verified="deserialized")
    signed, raw = Signer(PRIVATE.encode()).sign(loaded), loaded.model_dump_json().encode()
    again = type(loaded).model_validate_json(raw)
    assert again == loaded
    assert manifest_digest(again.model_dump_json().encode()) == manifest_digest(raw)
    PublicKeys.read(PUBLIC).check(signed, raw)
    assert refused(signed, raw.replace(b"float16", b"float32")) == refused(SIGNED, RAW.replace(b"float32", b"float16"))
    newer = {**json.loads(raw), "measured_elsewhere": {}}  # as a manifest with a field that this version does not know
    assert type(loaded).model_validate(newer) == loaded


def test_what_is_not_signed_by_a_trusted_key_is_refused():
    assert refused(None) == "signature_missing"
    assert refused(SIGNED, keys=OTHER_PUBLIC) == "signature_untrusted"
    envelope = json.loads(SIGNED)
    statement = b64decode(envelope["payload"]).replace(b'"plan_size":1000', b'"plan_size":1001')
    envelope["payload"] = b64encode(statement).decode()  # changed after it was signed
    assert refused(json.dumps(envelope).encode()) == "signature_untrusted"


def test_a_changed_manifest_and_another_plan_are_told_apart():
    value = json.loads(RAW)
    warned = json.dumps(value | {"warnings": ["all is well"]}).encode()
    assert refused(SIGNED, warned) == "signature_other_manifest"
    other = json.dumps(value | {"plan": {"digest": "sha256:" + "2" * 64, "size": 1000}}).encode()
    assert refused(SIGNED, other) == "signature_other_plan"
    assert refused(SIGNED, b"{") == "signature_other_manifest"
    assert refused(resigned(lambda s: s["subject"].pop())) == "signature_other_manifest"
    assert refused(resigned(lambda s: s["subject"].pop(0))) == "signature_other_plan"


def test_what_says_nothing_about_an_engine_is_refused_by_name():
    payload = b64decode(json.loads(SIGNED)["payload"])
    assert refused(enveloped(payload, "text/plain")) == "signature_type"
    assert refused(enveloped(b"hello", "application/vnd.in-toto+json")) == "signature_malformed"
    assert refused(resigned(lambda s: s.update(predicateType="https://slsa.dev/vsa/v1"))) == "signature_malformed"
    assert refused(resigned(lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"))) == "signature_malformed"
    for junk in (b"", b"[]", b'{"payload": "eA==", "payloadType": "a", "signatures": []}'):
        assert refused(junk) == "signature_malformed"
    envelope = json.loads(SIGNED)
    envelope["signatures"][0]["sig"] = "!"
    assert refused(json.dumps(envelope).encode()) == "signature_malformed"


def test_keys_that_cannot_sign_or_check_are_refused(tmp_path):
    rsa = generate_private_key(65537, 2048)
    private = rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for pem in (private, b"no key", PUBLIC.encode()):
        with pytest.raises(KeyUnusable, match="key create"):
            Signer(pem)
    for given in (public, b"", b"no key", PRIVATE.encode(), tmp_path / "absent"):
        with pytest.raises(KeyUnusable):
            PublicKeys.read(given)
    (tmp_path / "key.pub").write_text(PUBLIC)
    assert PublicKeys.read(tmp_path / "key.pub").check(SIGNED, RAW)


def test_the_variable_names_a_file_or_holds_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.delenv("TRTFORGE_PUBLIC_KEY", raising=False)
    assert PublicKeys.named(None) is None
    (tmp_path / "key.pub").write_text(PUBLIC)
    for value in (PUBLIC, str(tmp_path / "key.pub")):
        monkeypatch.setenv("TRTFORGE_PUBLIC_KEY", value)
        keys = PublicKeys.named(None)
        assert keys
        assert keys.check(SIGNED, RAW)


@pytest.mark.parametrize("empty", ["", b"", []])
def test_an_empty_key_is_no_wish_to_go_unchecked(monkeypatch: pytest.MonkeyPatch, empty: Any):
    monkeypatch.delenv("TRTFORGE_PUBLIC_KEY", raising=False)
    with pytest.raises(KeyUnusable, match="is empty"):
        PublicKeys.named(empty)
    monkeypatch.setenv("TRTFORGE_PUBLIC_KEY", "")
    with pytest.raises(KeyUnusable, match="is empty"):
        PublicKeys.named(None)


def test_a_service_that_answers_with_another_engine_is_found_out_though_that_is_signed_too():
    answers = [answer(body=RAW), answer(body=SIGNED)]
    asked = f"sha256:{'0' * 64}"
    with Scripted(answers) as service, Client(service.url, public_key=PUBLIC) as client:
        with pytest.raises(SignatureRefused) as caught:
            client.artifacts.prove(asked)
        assert caught.value.code == "signature_other_manifest"
        assert ENGINE.engine_key in str(caught.value)
    with Scripted(answers) as service, Client(service.url, public_key=PUBLIC) as client:
        assert client.artifacts.prove(ENGINE.engine_key).manifest == ENGINE


def test_without_the_extra_a_client_works_and_says_what_to_install_for_signatures():
    code = """if True:
        import sys
        sys.modules["cryptography"] = None
        from trtforge.client import Client
        from trtforge.signature import KeyUnusable
        Client("http://127.0.0.1:9").close()
        try:
            Client("http://127.0.0.1:9", public_key=sys.argv[1])
        except KeyUnusable as error:
            print(error)
    """
    ran = subprocess.run([sys.executable, "-c", code, PUBLIC], capture_output=True, text=True, timeout=60)
    assert "pip install 'trtforge[verify]'" in ran.stdout, ran.stderr

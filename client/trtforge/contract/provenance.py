"""What is signed about an engine: an in-toto statement in a DSSE envelope, over the plan and the manifest.

The statement's predicate is SLSA provenance 1: what was asked for, what was built from, who built it.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from trtforge.contract.base import Wire
from trtforge.contract.engines import Manifest

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:trtforge:engine:1"
PLAN, MANIFEST = "plan", "manifest.json"  # names of the subjects


class EnvelopeSignature(Wire):
    keyid: str = ""  # a hint, not signed: only for choosing among keys
    sig: str  # base64


class Envelope(Wire):
    """A DSSE envelope, as its specification writes it in JSON."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    payload: str  # base64
    payload_type: str = Field(alias="payloadType")
    signatures: tuple[EnvelopeSignature, ...] = Field(min_length=1)


class Subject(Wire):
    name: str
    digest: dict[str, str]


class Statement(Wire):
    """An in-toto statement, as far as a verifier reads it."""

    type: str = Field(alias="_type")
    predicate_type: str = Field(alias="predicateType")
    subject: tuple[Subject, ...]
    predicate: dict[str, Any]


class SigningKey(Wire):
    keyid: str  # sha256 of the public key in DER (SubjectPublicKeyInfo)
    algorithm: str = "ed25519"
    public_key: str  # PEM


class SigningKeys(Wire):
    items: tuple[SigningKey, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes under a DSSE signature: both parts with their lengths in bytes, so that neither can be shifted."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def envelope(payload: bytes, keyid: str, sig: bytes) -> Envelope:
    signature = EnvelopeSignature(keyid=keyid, sig=b64encode(sig).decode())
    return Envelope(payload=b64encode(payload).decode(), payload_type=PAYLOAD_TYPE, signatures=(signature,))


def decoded(text: str) -> bytes:
    """Return base64 in either alphabet, which the specification allows. Raises `ValueError`."""
    try:
        return b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except NotBase64 as error:
        raise ValueError(f"not base64: {error}") from error


def manifest_digest(manifest: bytes) -> str:
    """Return the sha256 of a manifest's JSON in canonical form. Raises `ValueError` when it is not JSON.

    Order of keys, space and members that are null do not count: a later version may write those differently.
    """
    try:
        value = _without_nulls(json.loads(manifest))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_nulls(part) for name, part in value.items() if part is not None}
        case list():
            return [_without_nulls(part) for part in value]
    return value


def statement_of(manifest: Manifest) -> bytes:
    """Return the statement about an engine as JSON: what is signed."""
    named = manifest.model_dump_json().encode()
    plan, target = manifest.plan, manifest.target.model_dump(mode="json")
    files = [{"name": f.name, "digest": _digest(f.digest)} for f in manifest.model.files]
    value = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": PLAN, "digest": _digest(plan.digest)},
            {"name": MANIFEST, "digest": _digest(manifest_digest(named))},
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "engine_key": manifest.engine_key,
                    "key_schema": manifest.key_schema,
                    "model": manifest.model.digest,
                    "spec": manifest.spec.effective.model_dump(mode="json"),
                    "target": target,
                },
                "internalParameters": {"plan_size": plan.size},
                "resolvedDependencies": files,
            },
            "runDetails": {
                "builder": {
                    "id": f"urn:trtforge:builder:{manifest.builder.name}",
                    "version": {
                        manifest.builder.name: manifest.builder.version,
                        "onnx_parser": manifest.builder.onnx_parser,
                        "trtforge": manifest.build.service_version,
                    },
                },
                "metadata": {
                    "invocationId": manifest.build.id,
                    "finishedOn": manifest.created_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                },
            },
        },
    }
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def read_envelope(raw: bytes) -> Envelope:
    """Return an envelope. Raises `ValueError` when it is none."""
    try:
        return Envelope.model_validate_json(raw)
    except ValidationError as error:
        raise ValueError("it is no DSSE envelope") from error


def read_statement(payload: bytes) -> Statement:
    """Return a statement. Raises `ValueError` when it is none of ours."""
    try:
        found = Statement.model_validate_json(payload)
    except ValidationError as error:
        raise ValueError("its payload is no in-toto statement") from error
    if (found.type, found.predicate_type) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise ValueError(f"its payload is a {found.type} about {found.predicate_type}")
    return found


def digests_of(statement: Statement) -> dict[str, str]:
    """Return the sha256 of each subject by its name."""
    return {s.name: f"sha256:{s.digest.get('sha256', '')}" for s in statement.subject}


def _digest(digest: str) -> dict[str, str]:
    algorithm, _, value = digest.partition(":")
    return {algorithm: value}

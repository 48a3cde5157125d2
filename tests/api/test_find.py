"""Which engine is right and why two differ, asked of a real service."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.api.seeded import Seed, ask, seeded
from tests.conftest import Server
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge.cli.main import app
from trtforge.client import Client
from trtforge.contract.engines import Manifest
from trtforge.signature import SignatureRefused, new_key

WIDER = SPEC.model_copy(
    update={
        "profiles": ({**SPEC.profiles[0], "x": SPEC.profiles[0]["x"].model_copy(update={"max": (8, 3)})},),
        "optimization_level": 5,
    }
)
BOUND = TARGET.model_copy(
    update={
        "builder": "tensorrt",
        "gpu": "NVIDIA L40S",
        "driver": "570.86",
        "cuda": "12.8",
        "compute_capabilities": ("8.9",),
    }
)
SEEDS: list[Seed] = [(MODEL, SPEC, TARGET, b"one"), (MODEL, WIDER, TARGET, b"two"), (MODEL, SPEC, BOUND, b"three")]

Found = tuple[Server, list[Manifest]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    server, manifests = seeded(tmp_path_factory.mktemp("find") / "data", SEEDS)
    server.start()
    yield server, manifests
    server.stop()


def test_a_diff_names_what_differs_in_groups(found: Found):
    server, (one, wider, _) = found
    answer = ask(server, "GET", f"/v1/engines/{one.engine_key}/diff/{wider.engine_key}")
    assert answer.status_code == 200
    assert answer.json() == {
        "a": one.engine_key,
        "b": wider.engine_key,
        "same_plan": False,
        "groups": {
            "shapes": [{"field": "profiles.0.x.max.0", "a": 4, "b": 8}],
            "options": [{"field": "optimization_level", "a": 3, "b": 5}],
        },
    }
    itself = ask(server, "GET", f"/v1/engines/{one.engine_key}/diff/{one.engine_key}").json()
    assert (itself["same_plan"], itself["groups"]) == (True, {})


def test_a_diff_with_an_engine_that_is_not_there(found: Found):
    server, (one, *_) = found
    answer = ask(server, "GET", f"/v1/engines/{one.engine_key}/diff/sha256:{'0' * 64}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "0" * 64 in answer.json()["detail"]


def test_the_command_says_it_in_words(found: Found):
    server, (one, wider, bound) = found
    told = CliRunner().invoke(app, ["diff", one.engine_key, wider.engine_key, "--url", server.url]).stdout
    assert "  max of `x` axis 0: 4 → 8\n" in told
    told = CliRunner().invoke(app, ["diff", bound.engine_key, one.engine_key, "--url", server.url, "--json"]).stdout
    assert {"field": "driver", "a": "570.86", "b": None} in json.loads(told)["groups"]["target"]


def resolve(found: Found, **asked: object) -> httpx.Response:
    return ask(found[0], "POST", "/v1/engines/resolve", json={"model": MODEL} | asked)


MACHINE = {"builder": "tensorrt", "gpu": "NVIDIA L40S", "driver": "570.86", "compute_capabilities": ["8.9"]}
ASKED = SPEC.model_dump(mode="json")


def test_the_exact_engine_of_a_machine(found: Found):
    _, (one, _, bound) = found
    answer = resolve(found, spec=ASKED, target=MACHINE).json()
    assert (answer["engine"]["engine_key"], answer["policy"]) == (bound.engine_key, "exact")
    assert answer["nearest"] == {"engine_key": bound.engine_key, "differs": []}
    rtx = resolve(found, spec=ASKED, target={"builder": "tensorrt_rtx", "compute_capabilities": ["8.9"]}).json()
    assert rtx["engine"]["engine_key"] == one.engine_key


def test_a_policy_takes_what_is_near_and_says_what_differs(found: Found):
    _, (_, _, bound) = found
    newer = MACHINE | {"driver": "580.12"}
    answer = resolve(found, spec=ASKED, target=newer, policy="same_compute_capability").json()
    assert answer["engine"]["engine_key"] == bound.engine_key
    assert answer["nearest"]["differs"] == [{"field": "driver", "have": "570.86", "asked": "580.12"}]
    assert answer["policy"] == "same_compute_capability"
    assert [c["taken"] for c in answer["candidates"]] == [True, False, False]
    assert answer["candidates"][1]["objections"][0]["field"] == "builder"


def test_a_miss_tells_the_near_misses_and_what_to_submit(found: Found):
    server, (_, _, bound) = found
    answer = resolve(found, spec=ASKED, target=MACHINE | {"driver": "580.12"}, policy="same_driver_branch")
    assert answer.status_code == 404
    body = answer.json()
    assert body["code"] == "no_compatible_engine"
    assert "driver 570.86 → 580.12 (policy same_compute_capability takes it)" in body["detail"]
    assert body["nearest"]["engine_key"] == bound.engine_key
    assert body["submit"]["model"] == MODEL
    spec = {"profiles": ASKED["profiles"], "optimization_level": 4}
    body = resolve(found, spec=spec, target={"compute_capabilities": ["8.9"]}).json()
    assert "optimization_level 3 → 4" in body["detail"]
    submitted = ask(server, "POST", "/v1/builds", json=body["submit"])
    assert submitted.status_code == 201


def test_without_a_spec_any_engine_of_the_model_will_do(found: Found):
    answer = resolve(found, target={"builder": "tensorrt_rtx", "compute_capabilities": ["8.6"]}).json()
    assert answer["engine"]["engine_key"] == found[1][1].engine_key  # the newest
    assert ask(found[0], "POST", "/v1/engines/resolve", json={"model": "sha256:" + "0" * 64}).status_code == 404


def test_a_miss_of_a_submit_names_the_nearest_engine(found: Found):
    server, (_, wider, _) = found
    spec = WIDER.model_dump(mode="json") | {"workspace_bytes": 1 << 31}
    target = {"builder": "tensorrt_rtx", "compute_capabilities": ["8.9"]}
    body = {"model": MODEL, "spec": spec, "target": target}
    for _ in range(2):  # the second is a replay of the first
        answer = ask(server, "POST", "/v1/builds", json=body, headers={"Idempotency-Key": "nearest"}).json()
        assert answer["disposition"] == "created"
        assert answer["nearest"]["engine_key"] == wider.engine_key
        differs = {d["field"]: (d["have"], d["asked"]) for d in answer["nearest"]["differs"]}
        assert differs["workspace_bytes"] == (1 << 30, 1 << 31)
        assert set(differs) == {"workspace_bytes", "compute_capabilities"}


def test_an_engine_without_its_bytes_is_no_candidate(found: Found):
    server, (_, wider, _) = found
    plan = server.data / "store/plans" / wider.plan.digest[7:9] / wider.plan.digest[7:]
    kept = plan.read_bytes()
    plan.unlink()
    try:
        body = resolve(found, spec=WIDER.model_dump(mode="json"), target={"builder": "tensorrt_rtx"}).json()
        assert body["code"] == "no_compatible_engine"
        assert "plan" in [o["field"] for c in body["candidates"] for o in c["objections"]]
    finally:
        plan.write_bytes(kept)


def test_an_unsigned_engine_says_so_and_is_not_taken_by_who_wants_a_signature(found: Found, tmp_path: Path):
    server, (one, *_) = found
    answer = ask(server, "GET", f"/v1/engines/{one.engine_key}/signature")
    assert (answer.status_code, answer.json()["code"]) == (404, "unsigned")
    assert ask(server, "GET", "/v1/signing-keys").json() == {"items": []}
    with Client(server.url, public_key=new_key()[1]) as client, pytest.raises(SignatureRefused) as caught:
        client.fetch(one.engine_key, tmp_path / "model.plan")
    assert caught.value.code == "signature_missing"
    assert list(tmp_path.iterdir()) == []
    with Client(server.url) as client:
        client.fetch(one.engine_key, tmp_path / "model.plan")
        [place] = client.artifacts.export_to([one.engine_key], tmp_path)
    assert {p.name for p in place.iterdir()} == {"plan", "manifest.json"}


def test_what_cannot_be_exported_is_refused_before_a_byte_is_sent(found: Found):
    server, (one, *_) = found
    unknown = f"sha256:{'0' * 64}"
    for keys, code in (([], "invalid_request"), (["x"], "invalid_request"), ([one.engine_key, unknown], "not_found")):
        assert ask(server, "GET", "/v1/export", params={"key": keys}).json()["code"] == code
    many = [f"sha256:{number:064x}" for number in range(257)]
    assert ask(server, "GET", "/v1/export", params={"key": many}).json()["code"] == "invalid_request"
    assert ask(server, "POST", "/v1/import", content=b"no tar").json()["code"] == "archive_truncated"
    assert ask(server, "POST", "/v1/import", content=bytes(1024)).json() == {"items": []}


def test_triton_hears_of_inputs_from_the_model_where_the_manifest_is_silent(found: Found):
    server, (one, *_) = found
    config = ask(server, "GET", f"/v1/engines/{one.engine_key}/triton/config.pbtxt")
    assert config.headers["model-name"] == f"engine-{one.engine_key[7:23]}"
    assert 'name: "ids"' in config.text  # from the model: this manifest is of before it named inputs

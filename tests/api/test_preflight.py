"""Preflight over HTTP: what a build would fail on, before it; and builds that fail so without a builder."""

from functools import partial

import httpx
import pytest
from onnx import TensorProto
from onnx.helper import make_node

from tests.api.test_models import put
from tests.conftest import Server, light, ocr, silero
from tests.intake import hostile
from tests.worker.models import CRASH_PROFILE, crasher


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("preflight") / "data").start()
    yield server
    server.stop()


def digest_of(server: Server, model) -> str:
    answer = put(server, model)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["digest"])


def preflight(server: Server, digest: str, *profiles):
    asked = {"spec": {"profiles": list(profiles)}} if profiles else {}
    answer = httpx.post(f"{server.url}/v1/models/{digest}/preflight", json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def built(server: Server, digest: str, *profiles):
    asked = {"model": digest, "spec": {"profiles": list(profiles)}}
    headers = {"Prefer": "wait=60"}
    answer = httpx.post(f"{server.url}/v1/builds", json=asked, headers=headers, timeout=90)
    return answer.json()["build"]


def rec_profile(low, opt, high):
    return {"x": {"min": [1, 3, low, 32], "opt": [1, 3, opt, 320], "max": [2, 3, high, 640]}}


def test_the_recogniser(server):
    digest = digest_of(server, ocr("rec").read_bytes())
    found = preflight(server, digest, rec_profile(32, 32, 48))
    assert not found["ok"]
    (problem,) = found["problems"]
    assert (problem["code"], problem["where"]["smallest_legal"]) == ("shape_invalid", 33)
    assert found["profile_template"][0]["x"]["opt"] == [1, 3, 33, 320]
    assert "--optShapes=x:1x3x33x320" in found["trtexec"]
    good = preflight(server, digest, rec_profile(48, 48, 48))
    assert (good["ok"], good["problems"], good["warnings"]) == (True, [], [])
    build = built(server, digest, rec_profile(32, 32, 48))
    assert build["state"] == "failed"
    failure = build["failure"]
    assert (failure["code"], failure["stage"], failure["retryable"]) == ("shape_invalid", "prepare", False)
    assert "33" in failure["remedy"]
    log = httpx.get(f"{server.url}/v1/builds/{build['id']}/log").text
    assert "[INFO]" not in log, "the builder was started"


def test_what_would_crash_the_builder_fails_before_it_and_what_slips_through_is_a_crash(server):
    digest = digest_of(server, silero("silero_vad_op18_ifless").read_bytes())
    (problem,) = preflight(server, digest, CRASH_PROFILE)["problems"]
    assert (problem["code"], problem["where"]["smallest_legal"]) == ("shape_invalid", 64)
    assert built(server, digest, CRASH_PROFILE)["failure"]["code"] == "shape_invalid"
    failure = built(server, digest_of(server, crasher()), CRASH_PROFILE)["failure"]
    assert (failure["code"], failure["where"]["signal"]) == ("builder_crashed", "SIGSEGV")


def test_all_unsupported_nodes_are_listed(server):
    odd = [make_node("Odd", ["x"], ["a"], name="one", domain="my"), make_node("Even", ["a"], ["y"], domain="my")]
    found = preflight(server, digest_of(server, hostile.model(odd)))
    assert [(p["code"], p["where"]["op"], p["where"]["domain"], p["where"]["name"]) for p in found["problems"]] == [
        ("op_unsupported", "Odd", "my", "one"),
        ("op_unsupported", "Even", "my", ""),
    ]


def test_everything_at_once_with_profiles_to_fill_in(server):
    digest = digest_of(server, ocr("det").read_bytes())
    asked = {"spec": {"optimization_level": 9}}
    answer = httpx.post(f"{server.url}/v1/models/{digest}/preflight", json=asked, timeout=60).json()
    assert [p["code"] for p in answer["problems"]] == ["option_unsupported", "profile_required"]
    assert preflight(server, digest, *answer["profile_template"])["ok"]
    text = hostile.model([make_node("Identity", ["x"], ["y"])], inputs=[hostile.value("x", dtype=TensorProto.STRING)])
    found = preflight(server, digest_of(server, text))
    assert {p["code"] for p in found["problems"]} >= {"type_unsupported"}


def test_unknown_models_and_targets_are_refused(server):
    address = f"{server.url}/v1/models/sha256:{'0' * 64}/preflight"
    assert httpx.post(address, json={}).status_code == 404
    digest = digest_of(server, ocr("det").read_bytes())
    address = f"{server.url}/v1/models/{digest}/preflight"
    answer = httpx.post(address, json={"target": {"gpu": "no such"}})
    assert (answer.status_code, answer.json()["code"]) == (422, "target_unknown")
    assert httpx.post(address, json={"specs": {}}).status_code == 422


def _shaped(low, opt, high):
    return {"x": {"min": low, "opt": opt, "max": high}}


SILERO = {
    "input": {"min": [1, 64], "opt": [1, 512], "max": [1, 1024]},
    "state": {"min": [2, 1, 128], "opt": [2, 1, 128], "max": [2, 1, 128]},
}
TABLE = {
    **{name: (partial(light, name), None) for name in ("resnet50", "densenet121", "vgg19", "squeezenet")},
    "det": (partial(ocr, "det"), _shaped([1, 3, 64, 64], [1, 3, 640, 640], [1, 3, 1280, 1280])),
    "cls": (partial(ocr, "cls"), _shaped([1, 3, 48, 48], [1, 3, 48, 48], [6, 3, 48, 48])),
    "rec": (partial(ocr, "rec"), rec_profile(48, 48, 48)),
    "silero": (partial(silero, "silero_vad_op18_ifless"), SILERO),
}


@pytest.mark.parametrize("name", TABLE)
def test_models_of_packages_pass(server, name):
    path, profile = TABLE[name]
    digest = digest_of(server, path().read_bytes())
    found = preflight(server, digest, *([profile] if profile else []))
    assert (found["problems"], found["ok"]) == ([], True)

"""Submits that ask for what cannot be: one shape of answer, a remedy, and no build."""

import json
from typing import Any

import pytest

from tests.conftest import ocr
from tests.system.api import Api, Json
from tests.system.models import open_relus, same_relus
from tests.system.problems import assert_problem, nothing_changes

RANGE = {"min": [1, 3], "opt": [2, 3], "max": [4, 3]}
FIXED = {"min": [1, 3], "opt": [1, 3], "max": [1, 3]}


@pytest.fixture(scope="module")
def fixed(shared: Any) -> str:
    return Api(shared).upload(same_relus())


@pytest.fixture(scope="module")
def open_(shared: Any) -> str:
    return Api(shared).upload(open_relus())


def refused(api: Api, body: Json, code: str) -> Json:
    with nothing_changes(api):
        return assert_problem(api.http.post("/v1/builds", json=body), code)


def spec(**changes: Any) -> Json:
    return {"spec": changes}


def ranges(**changes: Any) -> Json:
    return spec(profiles=[{"t0": RANGE | changes}])


WRONG_OPEN = {
    "no profile": ({}, "profile_required"),
    "no profiles": (spec(profiles=[]), "profile_required"),
    "an empty profile": (spec(profiles=[{}]), "profile_required"),
    "min > opt": (ranges(min=[3, 3]), "profile_invalid"),
    "opt > max": (ranges(opt=[5, 3]), "profile_invalid"),
    "zero": (ranges(min=[0, 3]), "profile_invalid"),
    "negative": (ranges(min=[-1, 3]), "profile_invalid"),
    "too large": (ranges(max=[2**40, 3]), "profile_invalid"),
    "huge": (ranges(max=[10**30, 3]), "profile_invalid"),
    "too many elements": (ranges(max=[2**30, 3]), "profile_invalid"),
    "wrong rank": (ranges(min=[1, 3, 1]), "profile_invalid"),
    "no rank": (ranges(min=[], opt=[], max=[]), "profile_invalid"),
    "against a fixed axis": (ranges(max=[4, 5]), "profile_invalid"),
    "unknown input": (spec(profiles=[{"t0": RANGE, "other": RANGE}]), "profile_invalid"),
    "second profile wrong": (spec(profiles=[{"t0": RANGE}, {"t0": RANGE | {"min": [9, 3]}}]), "profile_invalid"),
    "shape values": (ranges(values=True), "profile_invalid"),
    "a float extent": (ranges(min=[1.5, 3]), "invalid_request"),
    "a text extent": (ranges(min=["1", 3]), "invalid_request"),
    "a boolean extent": (ranges(min=[True, 3]), "invalid_request"),
    "nine axes": (ranges(min=[1] * 9), "profile_invalid"),
    "no max": (spec(profiles=[{"t0": {"min": [1, 3], "opt": [1, 3]}}]), "invalid_request"),
    "profiles no list": (spec(profiles={"t0": RANGE}), "invalid_request"),
    "33 profiles": (spec(profiles=[{"t0": RANGE}] * 33), "invalid_request"),
    "NUL in an input's name": (spec(profiles=[{"t0\0": RANGE}]), "malformed_json"),
}


@pytest.mark.parametrize("name", WRONG_OPEN)
def test_profiles(api: Api, open_: str, name: str) -> None:
    change, code = WRONG_OPEN[name]
    body = refused(api, {"model": open_, **change}, code)
    if code.startswith("profile_"):
        assert body["errors"]
        assert list(body["template"][0]) == ["t0"]
        assert body["trtexec"].startswith("--minShapes=t0:")


def test_the_template_that_comes_with_a_refusal_is_accepted_as_it_is(api: Api, open_: str) -> None:
    body = refused(api, {"model": open_}, "profile_required")
    submitted = api.submit(open_, {"profiles": body["template"]}, headers={"Prefer": "wait=60"})
    assert api.get(f"/v1/requests/{submitted['request_id']}")["state"] == "served"


def test_a_refusal_names_axis_values_and_rule(api: Api) -> None:
    model = api.upload(ocr("det"))
    shape = {"min": [1, 3, 64, 64], "opt": [1, 3, 32, 64], "max": [0, 3, 128, 128]}
    body = refused(api, {"model": model, **spec(profiles=[{"x": shape}])}, "profile_invalid")
    places = [(e["where"]["profile"], e["where"]["input"], e["where"]["axis"]) for e in body["errors"]]
    assert {(0, "x", 0), (0, "x", 2)} <= set(places)
    assert "min 64, opt 32" in " ".join(e["message"] for e in body["errors"])


WRONG_FIXED = {
    "unknown option": (spec(dla_core=0), "option_unsupported"),
    "unknown run option": ({"options": {"nice": 3}}, "option_unsupported"),
    "unknown field": ({"models": "x"}, "invalid_request"),
    "unknown target field": ({"target": {"gpus": 3}}, "invalid_request"),
    "unknown range field": (spec(profiles=[{"t0": FIXED | {"median": [1, 3]}}]), "option_unsupported"),
    "level 99": (spec(optimization_level=99), "option_unsupported"),
    "level -1": (spec(optimization_level=-1), "option_unsupported"),
    "fp16": (spec(precision="fp16"), "option_unsupported"),
    "int8": (spec(precision="int8"), "option_unsupported"),
    "no workspace": (spec(workspace_bytes=0), "option_unsupported"),
    "negative workspace": (spec(workspace_bytes=-5), "option_unsupported"),
    "endless workspace": (spec(workspace_bytes=10**40), "option_unsupported"),
    "text level": (spec(optimization_level="3"), "invalid_request"),
    "float level": (spec(optimization_level=3.0), "invalid_request"),
    "boolean workspace": (spec(workspace_bytes=True), "invalid_request"),
    "precision a number": (spec(precision=16), "invalid_request"),
    "no timeout at all": ({"options": {"run_timeout_s": 0}}, "invalid_request"),
    "negative timeout": ({"options": {"queue_timeout_s": -1}}, "invalid_request"),
    "timeout of years": ({"options": {"run_timeout_s": 1e12}}, "invalid_request"),
    "priority too high": ({"options": {"priority": 101}}, "invalid_request"),
    "priority a float": ({"options": {"priority": 1.5}}, "invalid_request"),
    "fallback of nothing": ({"options": {"fallback": ["anything"]}}, "invalid_request"),
    "fallback unknown": ({"options": {"fallback": [{"spec": {"level": 1}}]}}, "invalid_request"),
    "fallback level 99": ({"options": {"fallback": [{"spec": {"optimization_level": 99}}]}}, "option_unsupported"),
    "label key": ({"options": {"labels": {"a b": "c"}}}, "invalid_request"),
    "label key empty": ({"options": {"labels": {"": "c"}}}, "invalid_request"),
    "label value long": ({"options": {"labels": {"a": "c" * 257}}}, "invalid_request"),
    "label value number": ({"options": {"labels": {"a": 1}}}, "invalid_request"),
    "33 labels": ({"options": {"labels": {f"k{i}": "v" for i in range(33)}}}, "invalid_request"),
    "builder": ({"target": {"builder": "tvm"}}, "invalid_request"),
    "target unknown": ({"target": {"builder_version": "0.0.1"}}, "target_unknown"),
    "target elsewhere": ({"target": {"gpu": "NVIDIA H200"}}, "target_unknown"),
    "capability unsupported": ({"target": {"compute_capabilities": ["9.0"]}}, "target_unsupported"),
    "capability odd": ({"target": {"compute_capabilities": ["eight"]}}, "target_unsupported"),
    "no capability": ({"target": {"compute_capabilities": []}}, "target_unsupported"),
    "65 capabilities": ({"target": {"compute_capabilities": ["8.9"] * 65}}, "invalid_request"),
    "spec null": ({"spec": None}, "invalid_request"),
    "spec a list": ({"spec": []}, "invalid_request"),
    "options a text": ({"options": "fast"}, "invalid_request"),
    "model no digest": ({"model": "resnet50"}, "invalid_request"),
    "model null": ({"model": None}, "invalid_request"),
    "model unknown": ({"model": "sha256:" + "0" * 64}, "model_unknown"),
    "model upper case": ({"model": "sha256:" + "A" * 64}, "invalid_request"),
    "model with a newline": ({"model": "sha256:" + "0" * 64 + "\n"}, "invalid_request"),
    "NUL in a target": ({"target": {"gpu": "a\0b"}}, "malformed_json"),
    "unknown input of a fixed model": (spec(profiles=[{"x": FIXED}]), "profile_invalid"),
    "text retry": ({"options": {"retry": "perhaps"}}, "invalid_request"),
}


@pytest.mark.parametrize("name", WRONG_FIXED)
def test_specs_options_and_targets(api: Api, fixed: str, name: str) -> None:
    change, code = WRONG_FIXED[name]
    refused(api, {"model": fixed, **change}, code)


def test_a_target_that_is_refused_lists_those_known(api: Api, fixed: str) -> None:
    body = refused(api, {"model": fixed, "target": {"os": "plan9"}}, "target_unknown")
    known = api.get("/v1/targets")["items"]
    assert [t["id"] for t in body["targets"]] == [t["id"] for t in known]


DEEP = 100_000
RAW = {
    "nothing": (b"", "invalid_request"),
    "no JSON": (b"model=sha256", "malformed_json"),
    "half": (b'{"model": "sha', "malformed_json"),
    "two": (b"{}{}", "malformed_json"),
    "a list": (b"[]", "invalid_request"),
    "a text": (b'"model"', "invalid_request"),
    "null": (b"null", "invalid_request"),
    "a number": (b"3", "invalid_request"),
    "invalid UTF-8": (b'{"model": "\xff\xfe"}', "malformed_json"),
    "UTF-16": ('{"model": "x"}'.encode("utf-16"), "malformed_json"),
    "a lone surrogate": (b'{"model": "\\ud800"}', "malformed_json"),
    "a surrogate as a field": (b'{"model": "%s", "\\udfff": 1}', "malformed_json"),
    "a surrogate in a label": (b'{"model": "%s", "options": {"labels": {"a": "\\ud800"}}}', "malformed_json"),
    "NUL in a label": (b'{"model": "%s", "options": {"labels": {"a": "b\\u0000c"}}}', "malformed_json"),
    "a key twice": (b'{"model": "%s", "spec": {"optimization_level": 1, "optimization_level": 2}}', "malformed_json"),
    "deep lists": (b"[" * DEEP, "malformed_json"),
    "deep objects": (b'{"spec":' * (DEEP // 4), "malformed_json"),
    "deep and closed": (b"[" * DEEP + b"]" * DEEP, "malformed_json"),
    "NaN": (b'{"model": "%s", "options": {"run_timeout_s": NaN}}', "malformed_json"),
    "infinite": (b'{"model": "%s", "options": {"run_timeout_s": Infinity}}', "malformed_json"),
    "overflow": (b'{"model": "%s", "options": {"run_timeout_s": 1e999}}', "invalid_request"),
    "digits": (b'{"model": "%s", "spec": {"workspace_bytes": ' + b"9" * 5000 + b"}}", "malformed_json"),
    "too large": (b'{"model": "%s", "spec": {"precision": "' + b"x" * 400_000 + b'"}}', "too_large"),
}


@pytest.mark.parametrize("name", RAW)
def test_bodies(api: Api, fixed: str, name: str) -> None:
    raw, code = RAW[name]
    content = raw.replace(b"%s", fixed.encode())
    with nothing_changes(api):
        answer = api.http.post("/v1/builds", content=content, headers={"Content-Type": "application/json"})
        assert_problem(answer, code)


def test_a_backslash_before_u0000_is_no_nul(api: Api, fixed: str) -> None:
    submitted = api.submit(fixed, labels={"path": "\\u0000"}, headers={"Prefer": "wait=60"})
    assert api.get(f"/v1/requests/{submitted['request_id']}")["state"] == "served"


@pytest.mark.parametrize(
    "media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_a_body_of_another_type(api: Api, fixed: str, media: str) -> None:
    with nothing_changes(api):
        content = json.dumps({"model": fixed})
        answer = api.http.post("/v1/builds", content=content, headers={"Content-Type": media})
        assert_problem(answer, "unsupported_media_type")


@pytest.mark.parametrize("name", ["half", "NaN", "NUL in a label", "a key twice", "deep lists"])
def test_a_preflight_reads_as_strictly(api: Api, fixed: str, name: str) -> None:
    raw, code = RAW[name]
    content = raw.replace(b"%s", fixed.encode())
    answer = api.http.post(
        f"/v1/models/{fixed}/preflight", content=content, headers={"Content-Type": "application/json"}
    )
    assert_problem(answer, code)

"""Uploads of models that mean harm, over HTTP: refused with the right code, and the service goes on."""

import hashlib

import httpx
from onnx import ModelProto, TensorProto
from onnx.helper import make_node

from tests.conftest import Server, light
from tests.intake import hostile


def put(server: Server, model: ModelProto | bytes) -> httpx.Response:
    body = model if isinstance(model, bytes) else model.SerializeToString()
    digest = hashlib.sha256(body).hexdigest()
    return httpx.put(f"{server.url}/v1/models/sha256:{digest}", content=body, timeout=60)


def test_each_is_refused_with_its_code_and_the_service_goes_on(server):
    plain = make_node("Neg", ["x"], ["y"])
    refused: dict[str, ModelProto | bytes] = {
        "model_too_complex": hostile.calls_itself(),
        "external_data_missing": hostile.model([plain], initializer=[hostile.outside("../../etc/passwd")]),
        "model_invalid": hostile.model([make_node("Neg", ["nowhere"], ["y"])]),
        "not_an_onnx_model": b"<!doctype html><p>Sign in",
    }
    for code, model in refused.items():
        answer = put(server, model)
        assert (answer.status_code, answer.json()["code"]) == (422, code)
        assert "etc/" not in answer.text
    assert put(server, hostile.doubles(16)).json()["code"] == "model_too_complex"
    assert put(server, light("squeezenet").read_bytes()).status_code == 201
    assert not list((server.data / "store" / "staging").glob("*/inspect*"))


def test_a_model_that_nothing_builds_is_kept_with_its_problems_and_refused_when_asked_for(server):
    text = hostile.value("x", dtype=TensorProto.STRING)
    made = put(server, hostile.model([make_node("Identity", ["x"], ["y"])], inputs=[text]))
    assert made.status_code == 201
    (problem,) = made.json()["problems"]
    assert problem["code"] == "type_unsupported"
    asked = httpx.post(f"{server.url}/v1/builds", json={"model": made.json()["digest"]})
    assert (asked.status_code, asked.json()["code"]) == (422, "type_unsupported")
    assert asked.json()["errors"] == [problem]

"""A model whose input decides a shape: refused without its values, built with them."""

import httpx

from tests.api.test_models import put
from tests.intake.test_shape_values import CASES


def test_asked_for_then_given(server):
    model = put(server, CASES["reshape"]).json()
    assert [t["shape_values"] for t in model["inputs"]] == [False, True]
    asked = {"model": model["digest"]}
    refused = httpx.post(f"{server.url}/v1/builds", json=asked).json()
    assert (refused["status"], refused["code"]) == (422, "shape_values_required")
    (template,) = refused["template"]
    assert template == {"s": {"min": [1, 1], "opt": [1, 1], "max": [8, 8], "values": True}}
    assert refused["trtexec"] == "--minShapes=s:1x1 --optShapes=s:1x1 --maxShapes=s:8x8"
    template["s"] |= {"opt": [6, 4], "max": [24, 24]}
    answer = httpx.post(
        f"{server.url}/v1/builds",
        json=asked | {"spec": {"profiles": [template]}},
        headers={"Prefer": "wait=60"},
        timeout=90,
    )
    build = answer.json()["build"]
    assert build["state"] == "succeeded", build["failure"]

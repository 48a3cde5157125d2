"""Lists, logs, manifests, plans and readiness: complete and true."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Server, light
from tests.system.api import Api, Json, digest_of
from tests.system.models import SLOW, open_relus, relus
from tests.system.problems import assert_problem
from trtforge.contract.engines import Manifest


def test_lists_go_newest_first_in_pages_that_neither_miss_nor_repeat(api: Api) -> None:
    models = [api.upload(relus()) for _ in range(5)]
    label = {"walk": "pages"}
    ids = [api.submit(m, labels=label, headers={"Prefer": "wait=60"})["build"]["id"] for m in models]
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = api.get("/v1/builds", label="walk=pages", limit=2, **cursor)
        seen += [b["id"] for b in page["items"]]
        api.built(relus())  # what comes meanwhile moves no page
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ids[::-1]


def test_filters_say_only_what_fits(api: Api) -> None:
    build = api.built(relus())
    model, key = build["model"], build["engine_key"]
    assert [b["id"] for b in api.get("/v1/builds", model=model)["items"]] == [build["id"]]
    assert [b["id"] for b in api.get("/v1/builds", engine_key=key)["items"]] == [build["id"]]
    assert api.get("/v1/builds", model=model, state="failed")["items"] == []
    assert api.get("/v1/builds", label="walk=nowhere")["items"] == []
    assert {b["state"] for b in api.get("/v1/builds", state="succeeded", limit=500)["items"]} == {"succeeded"}
    (engine,) = api.get("/v1/engines", model=model)["items"]
    assert (engine["engine_key"], engine["plan"]) == (key, build["engine"]["plan"])
    assert api.get("/v1/engines", model=model, builder="tensorrt")["items"] == []
    assert api.get("/v1/engines", model=model, builder="tensorrt_rtx")["items"] == [engine]
    assert api.get("/v1/engines", model=model, gpu="NVIDIA H200")["items"] == []
    first = api.get("/v1/engines", limit=1)
    second = api.get("/v1/engines", limit=1, cursor=first["next_cursor"])
    assert first["items"][0]["engine_key"] != second["items"][0]["engine_key"]


@pytest.fixture(scope="module")
def squeezenet(shared: Server) -> Json:
    return Api(shared).built(light("squeezenet"))


def test_a_log_names_no_place_of_this_machine(api: Api, squeezenet: Json) -> None:
    answer = api.http.get(f"/v1/builds/{squeezenet['id']}/log")
    assert answer.headers["content-type"].startswith("text/plain")
    text = answer.text
    assert "attempt 1" in text
    assert text.count("\n") > 10
    here = Path(__file__).parents[2]
    for place in (api.server.data, tempfile.gettempdir() + os.sep, Path.home(), sys.prefix, here, "site-packages"):
        assert str(place) not in text, place


def test_a_log_is_capped(make_server: Callable[..., Server]) -> None:
    api = Api(make_server(max_log_bytes="500"))
    text = api.http.get(f"/v1/builds/{api.built(relus())['id']}/log").text
    assert len(text.encode()) < 500 + 100  # the line that says so comes on top
    assert text.endswith("--- the log ends here: it reached its limit\n")


def test_a_manifest_is_complete_and_true(api: Api) -> None:
    spec = {
        "profiles": [
            {"t0": {"min": [1, 3], "opt": [2, 3], "max": [4, 3]}},
            {"t0": {"min": [1, 3], "opt": [8, 3], "max": [16, 3]}},
        ],
        "optimization_level": 2,
    }
    build = api.built(open_relus(), spec)
    raw = api.get(f"/v1/engines/{build['engine_key']}")
    manifest = Manifest.model_validate(raw)
    assert raw["schema"] == 1
    assert manifest.engine_key == build["engine_key"]
    assert raw["spec"]["requested"]["optimization_level"] == 2
    assert raw["spec"]["requested"].get("workspace_bytes") is None
    effective = raw["spec"]["effective"]
    assert (effective["optimization_level"], effective["precision"]) == (2, "as_is")
    assert (
        effective["workspace_bytes"]
        == api.get("/v1/targets")["items"][0]["capabilities"]["defaults"]["workspace_bytes"]
    )
    assert [p["t0"]["max"] for p in effective["profiles"]] == [[4, 3], [16, 3]]
    assert raw["target"] == build["target"]
    assert raw["builder"]["version"] == build["target"]["builder_version"]
    (file,) = raw["model"]["files"]
    assert (raw["model"]["digest"], file["digest"], file["size"]) == (
        build["model"],
        digest_of(open_relus()),
        len(open_relus()),
    )
    assert all(isinstance(raw["memory"][k], int) for k in ("weights_bytes", "activation_bytes", "scratch_bytes"))
    assert {"prepare", "parse", "build", "publish"} <= raw["timings"]["stages"].keys()
    assert all(seconds >= 0 for seconds in raw["timings"]["stages"].values())
    assert raw["timings"]["phases"]
    assert sum(raw["precision"]["achieved"].values()) > 0
    assert (raw["build"]["id"], raw["build"]["attempts"], raw["verified"]) == (build["id"], 1, "bytes")


def test_a_plan_is_the_same_by_key_and_by_digest(api: Api, squeezenet: Json) -> None:
    ref = squeezenet["engine"]["plan"]
    by_key = api.http.get(f"/v1/engines/{squeezenet['engine_key']}/plan")
    by_digest = api.http.get(f"/v1/plans/{ref['digest']}")
    assert by_key.content == by_digest.content
    assert digest_of(by_key.content) == ref["digest"]
    assert by_key.headers["etag"] == by_digest.headers["etag"] == f'"{ref["digest"]}"'
    assert by_key.headers["cache-control"] == "no-cache"
    assert "immutable" in by_digest.headers["cache-control"]
    (engine,) = api.get("/v1/engines", model=squeezenet["model"])["items"]
    assert engine["last_fetched_at"] is not None


def test_readiness_by_key_follows_the_build(calm: Api) -> None:
    build = calm.start(relus(SLOW))
    key = calm.building(build)["engine_key"]
    answer = calm.http.get(f"/v1/engines/{key}/ready")
    body = assert_problem(answer, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert (body["build"]["id"], body["build"]["stage"]) == (build, "build")
    assert body["build"]["progress"]["elapsed_s"] >= 0
    calm.http.delete(f"/v1/builds/{build}")
    calm.ended(build)
    assert_problem(calm.http.get(f"/v1/engines/{key}/ready"), "not_found")
    done = calm.built(relus())
    ready = calm.http.get(f"/v1/engines/{done['engine_key']}/ready")
    assert (ready.status_code, ready.content) == (204, b"")


def test_a_plan_that_was_lost_is_told_and_built_again(calm: Api) -> None:
    build = calm.built(relus())
    ref = build["engine"]["plan"]
    name = ref["digest"].removeprefix("sha256:")
    (calm.server.data / "store" / "plans" / name[:2] / name).unlink()
    assert_problem(calm.http.get(f"/v1/engines/{build['engine_key']}/plan"), "engine_corrupt")
    again = calm.submit(build["model"], headers={"Prefer": "wait=60"})
    assert (again["disposition"], again["build"]["state"]) == ("created", "succeeded")
    assert again["build"]["engine"]["plan"] == ref  # this builder is reproducible
    assert calm.http.get(f"/v1/engines/{build['engine_key']}/plan").status_code == 200


def test_requested_compute_capabilities_shape_the_key_in_any_order(api: Api) -> None:
    model = api.upload(relus())
    keys = []
    for asked in (["8.9", "8.6"], ["8.6", "8.9", "8.9"], ["8.9"]):
        body = {"model": model, "target": {"compute_capabilities": asked}}
        answer = api.http.post("/v1/builds", json=body, headers={"Prefer": "wait=60"}).json()
        keys.append((answer["build"] or answer["engine"])["engine_key"])
    assert keys[0] == keys[1] != keys[2]
    assert api.get(f"/v1/engines/{keys[0]}")["target"]["compute_capabilities"] == ["8.6", "8.9"]


def test_a_model_is_described(api: Api) -> None:
    model = api.get(f"/v1/models/{api.upload(light('squeezenet'))}")
    assert model["node_count"] > 50
    assert model["inputs"] == [
        {"name": "data_0", "dtype": "float32", "shape": [1, 3, 224, 224], "axes": [None] * 4, "shape_values": False}
    ]
    assert model["graph"] == "model.onnx"
    assert model["operators"]["Conv"] == 26

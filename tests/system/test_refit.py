"""An engine is given other weights: asked for, shared, refused and rebuilt as any build is.

The runtime of TensorRT, which needs a GPU, is a stand-in; model, parser, build and everything of ours is real.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_node
from onnx.numpy_helper import from_array
from typer.testing import CliRunner

from tests.conftest import Server
from tests.intake.hostile import model, value
from tests.nvml.script import Script, l40s
from tests.system.api import Api, assert_consistent, digest_of
from tests.system.models import relus
from tests.system.test_plugins import library, written
from trtforge.cli.main import app

Json = dict[str, Any]
ALL = {"refit": "all"}
STRIPPED = {"refit": "identical", "stripped_plan": True}


def matmul(seed: int, names: tuple[str, ...] = ("one", "two"), rows: int = 4, given: str = "x") -> bytes:
    """Return a model of two matrix products whose weights follow from `seed`."""
    numbers = np.random.default_rng(seed)
    weights = [from_array(numbers.random((rows, rows), np.float32), name) for name in names]
    nodes = [make_node("MatMul", [given, names[0]], ["h"]), make_node("MatMul", ["h", names[1]], ["y"])]
    tensors = {"inputs": [value(given, (2, rows))], "outputs": [value("y", (2, rows), TensorProto.FLOAT)]}
    content: bytes = model(nodes, **tensors, initializer=weights).SerializeToString()
    return content


@pytest.fixture(scope="module")
def machine(standin_11: dict[str, str], nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A GPU of which only NVML speaks, and the stand-in for what would run on it."""
    nvml = Script(nvml_library, tmp_path_factory.mktemp("gpu") / "nvml.txt")
    nvml.say(l40s())
    libraries = f"{nvml.environment['LD_LIBRARY_PATH']}:{standin_11['LD_LIBRARY_PATH']}"
    with pytest.MonkeyPatch.context() as patch:
        for name, setting in {**nvml.environment, **standin_11, "LD_LIBRARY_PATH": libraries}.items():
            patch.setenv(name, setting)
        yield


@pytest.fixture(scope="module")
def full(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service that builds with `tensorrt`, for every test that leaves it as it was; each asks for models of its own."""
    server = Server(tmp_path_factory.mktemp("full") / "data", builder="tensorrt", load_engines="off").start()
    yield Api(server)
    server.stop()


def ask(api: Api, key: str, digest: str, **options: Any) -> Any:
    return api.http.post(f"/v1/engines/{key}/refit", json={"model": digest, "options": options})


def refitted(api: Api, key: str, digest: str) -> Json:
    """Return the manifest of the engine `key` with the weights of a model."""
    answer = ask(api, key, digest)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/builds/{answer.json()['build']['id']}"
    build = api.ended(answer.json()["build"]["id"])
    assert build["state"] == "succeeded", build
    manifest: Json = api.get(f"/v1/engines/{build['engine_key']}")
    return manifest


def failed(api: Api, key: str, digest: str) -> Json:
    build = api.ended(ask(api, key, digest).json()["build"]["id"])
    failure: Json = build["failure"]
    return failure


def weights(api: Api, key: str) -> Json:
    """Return what the stand-in wrote into a plan about its weights."""
    about: Json = json.loads(api.http.get(f"/v1/engines/{key}/plan").content.partition(b"\n")[0])
    return about


def test_an_engine_is_given_the_weights_of_another_model(full: Api) -> None:
    base = full.built(matmul(1), ALL)["engine_key"]
    before, second = full.get(f"/v1/engines/{base}"), full.upload(matmul(2))
    made = refitted(full, base, second)
    assert made["engine_key"] != base
    assert (made["model"]["digest"], made["target"]) == (second, before["target"])
    assert made["spec"]["effective"] == {**before["spec"]["effective"], "refitted_from": base}
    assert (made["precision"], made["memory"]) == (before["precision"], before["memory"])
    assert weights(full, base)["weights"] != weights(full, made["engine_key"])["weights"]
    assert full.get(f"/v1/engines/{base}") == before
    _assert_shared(full, base, second, made)
    _assert_refitted_again(full, made["engine_key"])
    _assert_rebuilt(full, made["engine_key"])
    assert_consistent(full)


def _assert_shared(api: Api, base: str, second: str, made: Json) -> None:
    again = ask(api, base, second)
    assert (again.status_code, again.json()["disposition"]) == (200, "cached")
    assert again.headers["location"] == f"/v1/engines/{made['engine_key']}"
    fresh = api.submit(second, ALL)  # a build of it is another engine
    assert fresh["disposition"] == "created"
    whole = api.ended(fresh["build"]["id"])
    assert whole["engine_key"] not in (base, made["engine_key"])


def _assert_refitted_again(api: Api, key: str) -> None:
    third = refitted(api, key, api.upload(matmul(3)))
    assert third["spec"]["effective"]["refitted_from"] == key
    assert weights(api, third["engine_key"])["refit"] == "all"


def _assert_rebuilt(api: Api, key: str) -> None:
    build = api.ended(api.http.post(f"/v1/engines/{key}/rebuild").json()["build"]["id"])
    assert build["rebuild"]["identical"], build


def test_a_stripped_plan_is_given_its_own_weights_and_no_others(full: Api) -> None:
    build = full.built(matmul(11), STRIPPED)
    base = build["engine_key"]
    whole = refitted(full, base, build["model"])
    assert weights(full, base)["stripped"] is True
    about = weights(full, whole["engine_key"])
    assert (about["stripped"], about["refit"]) == (False, "none")
    other = ask(full, base, full.upload(matmul(12)))
    assert (other.status_code, other.json()["code"]) == (422, "refit_mismatch")
    assert build["model"] in other.json()["detail"]


def test_what_cannot_be_refitted_is_refused_before_anything_starts(full: Api) -> None:
    base, plain = full.built(matmul(21), ALL)["engine_key"], full.built(relus(3))
    known = len(full.get("/v1/builds")["items"])
    for key, digest, status, code in (
        (digest_of(b"nothing"), plain["model"], 404, "not_found"),
        (plain["engine_key"], plain["model"], 422, "not_refittable"),
        (base, digest_of(b"nothing"), 422, "model_unknown"),
        (base, full.upload(matmul(22, rows=5)), 422, "refit_mismatch"),
        (base, full.upload(matmul(22, given="z")), 422, "refit_mismatch"),
    ):
        answer = ask(full, key, digest)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert answer.json()["remedy"]
    assert ask(full, base, plain["model"], surprise=1).json()["code"] == "option_unsupported"
    assert len(full.get("/v1/builds")["items"]) == known


def test_missing_weights_are_named_and_a_fallback_builds_the_model_as_a_whole(full: Api) -> None:
    base = full.built(matmul(31), ALL)["engine_key"]
    other = full.upload(matmul(32, names=("one", "deux")))
    failure = failed(full, base, other)
    assert (failure["code"], failure["retryable"]) == ("weights_missing", False)
    assert (failure["where"]["missing"], failure["where"]["count"]) == (["two"], 1)
    assert ask(full, base, other).json()["disposition"] == "known_failure"
    third = ask(full, base, full.upload(matmul(33, names=("one", "deux"))), fallback=[{"spec": {}}]).json()
    request = full.get(f"/v1/requests/{third['request_id']}")
    full.ended(request["builds"][0])
    whole = full.ended(full.get(f"/v1/requests/{third['request_id']}")["builds"][-1])
    assert (whole["state"], whole["spec"]["effective"]["refitted_from"]) == ("succeeded", None)
    served = full.get(f"/v1/requests/{third['request_id']}")["served"]
    assert [d["field"] for d in served["differs"]] == ["refitted_from"]
    assert_consistent(full)


def test_an_engine_that_is_gone_or_damaged_fails_the_refit_and_says_so(
    machine: None, make_server: Callable[..., Server]
) -> None:
    full = Api(make_server(builder="tensorrt"))
    base, other = full.built(matmul(41), ALL)["engine_key"], full.upload(matmul(42))
    store = full.server.data / "store"
    (manifest,) = store.rglob(f"*{base.removeprefix('sha256:')}*.json")
    plan = _plan(store, full.get(f"/v1/engines/{base}")["plan"]["digest"])
    content = plan.read_bytes()
    _replace(plan, content[:-1] + b"?")
    damaged = failed(full, base, other)
    assert (damaged["code"], damaged["retryable"], damaged["where"]) == ("engine_missing", True, {"engine_key": base})
    strange = b"{}" + content  # whole, and no plan
    told = json.loads(manifest.read_text())
    told["plan"] = {"digest": digest_of(strange), "size": len(strange)}
    _replace(manifest, json.dumps(told).encode())
    _replace(_plan(store, digest_of(strange)), strange)
    refused = full.ended(ask(full, base, other, retry=True).json()["build"]["id"])["failure"]
    assert refused["code"] == "refit_failed"
    assert "magic" in refused["native"]
    manifest.unlink()
    gone = full.ended(ask(full, base, other, retry=True).json()["build"]["id"])["failure"]
    assert gone["code"] == "engine_missing"


def _plan(store: Path, digest: str) -> Path:
    name = digest.removeprefix("sha256:")
    return store / "plans" / name[:2] / name


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def test_the_default_builder_has_nothing_to_refit(make_server: Callable[..., Server]) -> None:
    api = Api(make_server(builder="tensorrt_rtx"))
    build = api.built(relus(3))
    answer = ask(api, build["engine_key"], build["model"])
    assert (answer.status_code, answer.json()["code"]) == (422, "not_refittable")


def test_a_version_compatible_plan_brings_the_plugins_that_are_asked_for(
    full: Api, make_server: Callable[..., Server], tmp_path: Path
) -> None:
    digest = library(tmp_path / "sound.so", "Nonsense")
    listed = written(tmp_path / "list.yaml", sound={"path": "sound.so", "sha256": digest, "creators": ["Nonsense"]})
    (known,) = full.get("/v1/targets")["items"]
    assert "plugins_to_serialize" not in known["capabilities"]["options"]
    api = Api(make_server(builder="tensorrt", plugins=str(listed)))
    (known,) = api.get("/v1/targets")["items"]
    assert known["capabilities"]["options"]["plugins_to_serialize"]["choices"] == ["sound"]
    asked = {"plugins": ["sound"], "plugins_to_serialize": ["sound"], "version_compatible": True}
    build = api.built(relus(3), asked)
    assert build["spec"]["effective"]["plugins_to_serialize"] == ["sound"]
    assert weights(api, build["engine_key"])["libraries"] == [digest]
    assert str(tmp_path) not in json.dumps([build, api.get(f"/v1/engines/{build['engine_key']}")])
    other = api.built(relus(3), asked | {"plugins_to_serialize": []})
    assert weights(api, other["engine_key"])["libraries"] == []


def test_the_command_uploads_the_model_watches_and_fetches(full: Api, tmp_path: Path) -> None:
    base = full.built(matmul(51), ALL)["engine_key"]
    path = tmp_path / "next.onnx"
    path.write_bytes(matmul(52))
    run = CliRunner().invoke(
        app, ["refit", base, str(path), "--url", full.server.url, "-o", str(tmp_path / "next.plan")]
    )
    assert run.exit_code == 0, run.output
    assert (tmp_path / "next.plan").read_bytes().startswith(b'{"libraries": [], "refit": "all"')
    (tmp_path / "other.onnx").write_bytes(matmul(53, names=("one", "deux")))
    command = ["refit", base, str(tmp_path / "other.onnx"), "--no-fetch", "--json", "--url", full.server.url]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert json.loads(refused.output.splitlines()[-1])["failure"]["code"] == "weights_missing"
    whole = CliRunner().invoke(app, [*command, "--or-build", "--retry"])
    assert json.loads(whole.output.splitlines()[-1])["served"]["fallback"] is True

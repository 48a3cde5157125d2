"""Engines are deserialized on the GPU that they were built for. No GPU took part here.

Over NVIDIA's own 11.4 bindings the runtime refuses, for want of a GPU, and that is what is shown. What follows when an
engine loads is shown with a stand-in for the runtime, and a CUDA that only counts.
"""

import os
import signal
from collections.abc import Callable

import psutil
import pytest

from app.builds.loading import PHASE
from tests.conftest import Server, light
from tests.cuda.script import Script as Cuda
from tests.nvml.script import Script, l40s
from tests.system.api import Api, Json, assert_consistent, children, eventually
from tests.system.models import open_relus, relus
from trtforge.cli.manifest import summary
from trtforge.client import Client

Full = Callable[..., Api]


def _settle(monkeypatch: pytest.MonkeyPatch, *several: dict[str, str]) -> None:
    libraries = ":".join(one["LD_LIBRARY_PATH"] for one in several)
    for one in several:
        for name, value in (one | {"LD_LIBRARY_PATH": libraries}).items():
            monkeypatch.setenv(name, value)


@pytest.fixture
def real(
    make_server: Callable[..., Server], tensorrt_11: dict[str, str], nvml: Script, monkeypatch: pytest.MonkeyPatch
) -> Full:
    """Start services that build with TensorRT's own API, for a GPU of which only NVML speaks."""
    nvml.say(l40s())
    _settle(monkeypatch, nvml.environment, tensorrt_11)
    return lambda **settings: Api(make_server(builder="tensorrt", **settings))


@pytest.fixture
def full(
    make_server: Callable[..., Server],
    standin_11: dict[str, str],
    nvml: Script,
    cuda: Cuda,
    monkeypatch: pytest.MonkeyPatch,
) -> Full:
    """Start services whose engines load, on the same GPU."""
    nvml.say(l40s())
    _settle(monkeypatch, nvml.environment, cuda.environment, standin_11)
    return lambda **settings: Api(make_server(builder="tensorrt", **settings))


def _manifest(api: Api, build: Json) -> Json:
    manifest: Json = api.get(f"/v1/engines/{build['engine_key']}")
    return manifest


def _loads(build: Json) -> bool:
    return any(phase["name"] == PHASE for phase in (build["progress"] or {"phases": []})["phases"])


def test_what_does_not_load_is_a_warning_where_it_is_only_tried(real: Full) -> None:
    api = real()
    build = api.built(relus(3))
    manifest = _manifest(api, build)
    assert (manifest["verified"], manifest["loaded"]) == ("bytes", None)
    (warning,) = [w for w in manifest["warnings"] if "could not be loaded" in w]
    assert "cudaError 35" in warning
    events = api.events(build["id"])
    assert [e["level"] for e in events if e["type"] == "log" and e["text"] == warning] == ["warning"]
    phases = [e["phase"]["id"] for e in events if e["type"] == "phase_started" and e["phase"]["name"] == PHASE]
    assert [e for e in events if e["type"] == "phase_finished" and e["phase"]["id"] in phases]
    assert "IRuntime::deserializeCudaEngine" in api.http.get(f"/v1/builds/{build['id']}/log").text
    assert_consistent(api)


def test_what_does_not_load_fails_where_it_must_and_is_not_looked_at_where_it_is_off(real: Full) -> None:
    api = real(load_engines="require")
    model = relus(3)
    failed = api.ended(api.start(model))
    failure = failed["failure"]
    assert (failure["code"], failure["stage"], failure["retryable"]) == ("engine_unloadable", "build", True)
    assert "cudaError 35" in failure["native"]
    assert api.get("/v1/engines")["items"] == []
    assert_consistent(api)
    api.server.stop()
    api.server.settings["load_engines"] = "off"
    api.server.start()
    manifest = _manifest(api, api.built(model))  # a failure of ours is not remembered against the model
    assert (manifest["verified"], manifest["loaded"]) == ("bytes", None)
    assert not [w for w in manifest["warnings"] if "loaded" in w]


def test_a_loaded_engine_is_told_of_measured_compared_and_shown(full: Full, cuda: Cuda) -> None:
    api = full(load_engines="require", measure_contexts="2", measure_s="0.05")
    one = api.built(light("squeezenet"), {"profiling_verbosity": "detailed"})
    manifest = _manifest(api, one)
    assert manifest["verified"] == "deserialized"
    loaded = manifest["loaded"]
    assert {"float32", "int64"} <= set(loaded["layers"].values())
    assert len(loaded["inspector"]["Layers"]) == len(loaded["layers"]) > 50
    assert loaded["memory"]["profiles"] == [1 << 20]
    points = [(m["contexts"], m["cuda_graphs"]) for m in loaded["measurements"]]
    assert points == [(1, False), (1, True), (2, False), (2, True)]
    assert not [w for w in manifest["warnings"] if "easur" in w]
    cuda.assert_nothing_is_held()

    two = api.built(light("squeezenet"), {"optimization_level": 2})
    assert set(_manifest(api, two)["loaded"]["layers"].values()) == {None}
    groups = api.get(f"/v1/engines/{one['engine_key']}/diff/{two['engine_key']}")["groups"]
    fields = {group: {change["field"] for change in changes} for group, changes in groups.items()}
    assert any(field.startswith("layers.") for field in fields["precision"])
    assert any(field.startswith("contexts.2_graphs.latency_ms") for field in fields["performance"])
    assert not any(
        field.startswith("contexts.") for group in fields for field in fields[group] if group != "performance"
    )
    _assert_shown(api, one["engine_key"])
    _assert_only_built_ones_are_loaded(api, cuda, one)
    profile = {"t0": {"min": [1, 3], "opt": [4, 3], "max": [8, 3]}}
    several = _manifest(api, api.built(open_relus(), {"profiles": [profile, profile]}))["loaded"]
    assert several["memory"]["profiles"] == [1 << 20, 2 << 20]
    assert len(several["measurements"]) == 4
    cuda.assert_nothing_is_held()


def _assert_shown(api: Api, key: str) -> None:
    with Client(api.server.url) as client:
        told = summary(client.manifest(key)).splitlines()
    table = told[told.index("measured, at the optimal shapes:") + 1 :][:3]
    assert [line.split()[:2] for line in table] == [
        ["contexts", "inferences/s"],
        ["1", table[1].split()[1]],
        ["2", table[2].split()[1]],
    ]
    assert any(line.startswith("loaded ") and "1.0 MiB" in line for line in told)


def _assert_only_built_ones_are_loaded(api: Api, cuda: Cuda, build: Json) -> None:
    """A rebuild is compared and an engine that is there is adopted; neither runs."""
    before = cuda.counts()
    again = api.http.post(f"/v1/engines/{build['engine_key']}/rebuild").json()["build"]["id"]
    rebuilt = api.ended(again)["rebuild"]
    assert rebuilt["identical"] or "layers" not in str(rebuilt["differs"])
    assert PHASE not in str(api.events(again))
    assert cuda.counts() == before


def _loading(api: Api, cuda: Cuda, build: str) -> list[psutil.Process]:
    """Return the process that measures, once it does."""
    api.until(build, _loads)
    eventually(lambda: cuda.counts().get("streams", (0, 0))[1], 60)
    return [c for c in children(api.server) if "trtforge-watch-" not in c.cwd()]


def test_a_stop_ends_the_loading_at_once_and_nothing_is_published(full: Full, cuda: Cuda) -> None:
    api = full(load_engines="require", measure_contexts="1", measure_s="20", lease_s="3")
    build = api.start(relus())
    (child,) = _loading(api, cuda, build)
    long = api.until(build, lambda b: b["progress"]["elapsed_s"] > 4)  # longer than its lease
    assert (long["attempt"], long["stage"], _loads(long)) == (1, "build", True)
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    ended = api.ended(build)
    assert (ended["state"], ended["cancel"]["ended_by"]) == ("cancelled", "between_stages")
    assert not child.is_running()
    assert api.get("/v1/engines")["items"] == []
    started, finished = (
        [e["phase"]["id"] for e in api.events(build) if e["type"] == kind]
        for kind in ("phase_started", "phase_finished")
    )
    assert sorted(started) == sorted(finished)
    assert_consistent(api)


def test_a_loading_that_is_killed_or_takes_too_long_is_a_warning(full: Full, cuda: Cuda) -> None:
    api = full(measure_contexts="1", measure_s="20")
    build = api.start(relus())
    (child,) = _loading(api, cuda, build)
    os.kill(child.pid, signal.SIGKILL)
    assert api.ended(build)["state"] == "succeeded"
    assert "ended with SIGKILL and no answer" in str(_manifest(api, api.build(build))["warnings"])
    api.server.stop()
    api.server.settings["load_timeout_s"] = "0.3"
    api.server.start()
    manifest = _manifest(api, api.built(relus(3)))
    assert "it took more than 0.3 seconds" in str(manifest["warnings"])
    assert (manifest["verified"], manifest["loaded"]) == ("bytes", None)
    assert_consistent(api)


def test_a_service_that_goes_away_meanwhile_keeps_the_engine_unless_it_must_be_loaded(full: Full, cuda: Cuda) -> None:
    api = full(measure_contexts="1", measure_s="20", drain_s="0")
    kept = api.start(relus())
    _loading(api, cuda, kept)
    assert api.server.stop() == 0
    api.server.settings["load_engines"] = "require"
    api.server.start()
    assert "not loaded: its worker was shutting down" in str(_manifest(api, api.build(kept))["warnings"])
    queued = api.start(relus())
    _loading(api, cuda, queued)
    assert api.server.stop() == 0
    api.server.settings |= {"device": "cpu", "builder": "tensorrt_rtx"}
    api.server.start()
    assert [api.build(one)["state"] for one in (kept, queued)] == ["succeeded", "queued"]

"""The builder `tensorrt` from end to end: NVIDIA's own Python API of 11.4, on the libraries of TensorRT for RTX.

What is shown here is that we speak that API. Nothing is said of kernels, timings or a GPU: without one this library
saves a timing cache and takes none back, and it fits the bindings only where inputs are not whole numbers.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.domain.timing_cache import timing_cache_name
from app.worker.locks import try_lock
from tests.conftest import Server, light
from tests.nvml.script import Script, l40s
from tests.system.api import Api, assert_consistent
from tests.system.models import relus
from trtforge.contract.target import Target

Full = Callable[..., Api]
LONG = 1200  # Relus: some seconds


@pytest.fixture
def full(
    make_server: Callable[..., Server], tensorrt_11: dict[str, str], nvml: Script, monkeypatch: pytest.MonkeyPatch
) -> Full:
    """Start a service that builds with `tensorrt`, for a GPU of which only NVML speaks."""
    nvml.say(l40s())
    libraries = f"{nvml.environment['LD_LIBRARY_PATH']}:{tensorrt_11['LD_LIBRARY_PATH']}"
    for name, value in {**tensorrt_11, "LD_LIBRARY_PATH": libraries}.items():
        monkeypatch.setenv(name, value)
    return lambda **settings: Api(make_server(builder="tensorrt", **settings))


def _cache(api: Api) -> Path:
    (cache,) = (api.server.data / "timing_caches").glob("*.cache")
    return cache


def _manifest(api: Api, build: dict[str, str]) -> dict[str, dict[str, object]]:
    manifest: dict[str, dict[str, object]] = api.get(f"/v1/engines/{build['engine_key']}")
    return manifest


def test_it_says_what_it_can_builds_with_progress_and_keeps_its_timings(full: Full) -> None:
    api = full()
    _assert_capabilities(api)
    _assert_refusals(api)
    spec = {"profiling_verbosity": "detailed", "tactic_sources": ["jit_convolutions"], "sparsity": True}
    build = api.built(light("squeezenet"), spec)
    effective = build["spec"]["effective"]
    assert effective | spec == effective
    assert (effective["refit"], effective["weight_streaming"], effective["tactic_dram_bytes"]) == ("none", False, None)
    types = [e["type"] for e in api.events(build["id"])]
    assert types.count("phase_started") == types.count("phase_finished") > 3
    manifest, cache = _manifest(api, build), _cache(api)
    assert manifest["builder"]["version"] == "11.4.0.106"
    assert cache.name.startswith("tensorrt_11.4.0.106_NVIDIA-L40S_8.9_580_")
    sizes = {"bytes_before": 0, "bytes_after": cache.stat().st_size}
    assert manifest["timing_cache"] == {"pinned": False, "entries_before": 0, "entries_after": 0, **sizes}
    _assert_drops(api, cache)
    _assert_saves_after_a_failure(api, cache)
    _assert_goes_on_without_the_lock(api, cache)
    assert_consistent(api)


def _assert_capabilities(api: Api) -> None:
    (known,) = api.get("/v1/targets")["items"]
    target = known["target"]
    assert (target["builder"], target["builder_version"]) == ("tensorrt", "11.4.0.106")
    assert (target["gpu"], target["compute_capabilities"], target["driver"][:4]) == ("NVIDIA L40S", ["8.9"], "580.")
    can = known["capabilities"]
    assert (can["portable"], can["needs_gpu"], can["timing_cache"]) == (False, True, True)
    refit = can["options"]["refit"]
    assert (refit["choices"], refit["default"]) == (["none", "identical", "all"], "none")


def _assert_refusals(api: Api) -> None:
    model = api.upload(relus(3))
    for spec, option in (
        ({"hardware_compatibility": "ampere_plus"}, "hardware_compatibility"),  # this library ignores it, as probed
        ({"tactic_sources": ["cudnn"]}, "tactic_sources"),  # of 10.x
        ({"tactic_dram_bytes": 3 << 20}, "tactic_dram_bytes"),
        ({"stripped_plan": True}, "stripped_plan"),
    ):
        answer = api.http.post("/v1/builds", json={"model": model, "spec": spec})
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["code"], error["where"]) == (422, "option_unsupported", {"option": option})
        assert error["remedy"]
    assert api.get("/v1/builds")["items"] == []


def _assert_drops(api: Api, cache: Path) -> None:
    """What the builder does not take is dropped, with a word, and the build goes on and saves its own."""
    cache.write_bytes(b"of somebody else")
    manifest = _manifest(api, api.built(relus(3)))
    assert manifest["timing_cache"]["bytes_before"] == 0
    assert manifest["timing_cache"]["bytes_after"] == cache.stat().st_size > len(b"of somebody else")
    assert "dropped and begun anew" in str(manifest["warnings"])


def _assert_saves_after_a_failure(api: Api, cache: Path) -> None:
    cache.unlink()
    build = api.ended(api.start(light("squeezenet"), {"refit": "identical", "stripped_plan": True}))
    assert (build["state"], build["failure"]["code"]) == ("failed", "compiler_failed")  # it takes a GPU of its own
    assert cache.exists()


def _assert_goes_on_without_the_lock(api: Api, cache: Path) -> None:
    cache.unlink()
    held = try_lock(cache.with_name(cache.name + ".lock"), {})
    assert held
    with held:
        manifest = _manifest(api, api.built(relus(3)))
    assert "could not be saved: another build holds it" in str(manifest["warnings"])
    assert not cache.exists()


def test_it_is_cancelled_and_its_timings_are_kept(full: Full) -> None:
    api = full(cancel_grace_s="90")  # so that nothing is killed: it stops by itself
    build = api.start(relus(LONG))
    api.building(build)
    assert api.http.request("DELETE", f"/v1/builds/{build}").status_code == 202
    ended = api.ended(build, 120)
    assert (ended["state"], ended["cancel"]["ended_by"]) in (("cancelled", "monitor"), ("cancelled", "between_stages"))
    assert _cache(api).stat().st_size > 100
    assert_consistent(api)


def test_a_pinned_cache_is_used_as_it_is_or_not_at_all(full: Full) -> None:
    api = full(timing_cache="pinned", timing_cache_dir="timings")
    folder = api.server.data.parent / "timings"
    missing = api.ended(api.start(relus(3)))
    assert (missing["failure"]["code"], missing["failure"]["retryable"]) == ("timing_cache_unusable", True)
    assert list(folder.iterdir()) == []
    cache = folder / timing_cache_name(Target.model_validate(missing["target"]))
    cache.write_bytes(b"of somebody else")
    refused = api.ended(api.start(relus(3)))
    assert refused["failure"]["code"] == "timing_cache_unusable"
    assert cache.read_bytes() == b"of somebody else"

"""Loading an engine in a child. The runtime and CUDA are stand-ins: no TensorRT engine ran on a GPU here."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.worker.inspector import MOST_BYTES, MOST_LAYERS
from app.worker.messages import Failed, Loaded, LoadRequest, Stopped
from app.worker.process import Child
from tests.worker.models import outcome, run, run_child

X = {"name": "x", "input": True, "shape": [2, 3], "dtype": "FLOAT", "host": False}
Y = {"name": "y", "input": False, "shape": [2, 3], "dtype": "FLOAT", "host": False}
OPEN = {"io": [X | {"shape": [-1, 3]}, Y | {"shape": [-1, 3]}], "profiles": [{"x": [[1, 3], [4, 3], [8, 3]]}]}
CONV = {"Name": "conv", "LayerType": "CaskConvolution", "Inputs": [], "Outputs": [{"Datatype": "Half"}]}


@pytest.fixture(autouse=True)
def standing_in(standin_11, cuda, monkeypatch):
    libraries = f"{cuda.environment['LD_LIBRARY_PATH']}:{standin_11['LD_LIBRARY_PATH']}"
    for name, value in {**standin_11, **cuda.environment, "LD_LIBRARY_PATH": libraries}.items():
        monkeypatch.setenv(name, value)


def _plan(folder: Path, **about):
    said = {"io": [X, Y], "inspector": {"Layers": [CONV, "relu"]}}
    line = {"refit": "none", "weights": {}, "stripped": False, "run": said | about}
    (folder / "plan").write_bytes(json.dumps(line).encode() + b"\nrest")


def _request(**changes):
    fields: dict[str, Any] = {
        "plan": "plan",
        "plugins": [],
        "host_code": False,
        "contexts": 0,
        "seconds": 0.05,
        "values": {},
    }
    return LoadRequest("tensorrt", **(fields | changes))


def _load(folder: Path, about=None, **changes):
    """Return the child's outcome, after it has let go of everything."""
    if about is not None:
        _plan(folder, **about)
    messages, ended, output = run(run_child(_request(**changes), folder))
    assert ended.code == 0, output
    alive = [line for line in output.splitlines() if "execution contexts: " in line]
    assert not alive or alive[-1].endswith("execution contexts: 0")
    return outcome(messages)


def _points(loaded):
    return [(point["contexts"], point["cuda_graphs"]) for point in loaded.engine["measurements"]]


def test_an_engine_says_what_it_is_and_nothing_runs_unless_asked(tmp_path, cuda):
    loaded = _load(tmp_path, {"profiles": [{}, {}]})
    assert isinstance(loaded, Loaded)
    assert loaded.warnings == []
    told = loaded.engine
    assert told["layers"] == {"conv": "float16", "relu": None}
    assert told["inspector"] == {"Layers": [CONV, "relu"]}
    assert told["memory"] == {
        "profiles": [1 << 20, 2 << 20],
        "context_bytes": 2 << 20,
        "weights_bytes": 7,
        "streamable_weights_bytes": 0,
    }
    assert (told["measurements"], told["seconds"] >= 0) == ([], True)
    assert cuda.counts() == {}


def test_the_inspector_is_asked_with_the_shapes_that_were_optimized_for(tmp_path):
    layer = {"Name": "conv", "Outputs": [{"Format/Datatype": "Row major linear FP32"}]}
    loaded = _load(tmp_path, {**OPEN, "inspector": {"Layers": [layer]}})
    assert loaded.engine["layers"] == {"conv": "float32"}


def test_one_two_and_more_contexts_are_measured_and_all_is_given_back(tmp_path, cuda):
    loaded = _load(tmp_path, OPEN, contexts=3)
    assert loaded.warnings == []
    assert _points(loaded) == [(n, graphs) for n in (1, 2, 3) for graphs in (False, True)]
    for point in loaded.engine["measurements"]:
        assert point["inferences"] >= point["contexts"]
        assert point["seconds"] >= 0.05
        assert point["throughput_per_s"] > 0
        assert 0 < point["latency_ms"]["p50"] <= point["latency_ms"]["p99"]
    cuda.assert_nothing_is_held()
    assert {kind: made for kind, (_, made) in cuda.counts().items()} == {
        "contexts": 1,
        "streams": 3,
        "buffers": 6,
        "graphs": 6,
        "execs": 6,
    }


def test_values_go_to_the_host_and_outputs_of_unknown_size_get_what_they_need(tmp_path, cuda):
    size = {"name": "size", "input": True, "shape": [2], "dtype": "INT64", "host": True}
    told = {"name": "told", "input": False, "shape": [2], "dtype": "INT64", "host": True}
    found = {"name": "found", "input": False, "shape": [-1], "dtype": "INT64", "host": False}
    about = {"io": [X, size, Y, told, found], "profiles": [{"size": [[5, 5], [6, 7], [9, 9]]}]}
    loaded = _load(tmp_path, about, contexts=2, values={"size": [6, 7]})
    assert (loaded.warnings, len(_points(loaded))) == ([], 4)
    cuda.assert_nothing_is_held()
    assert cuda.counts()["buffers"] == (0, 6)  # x, y and found, of each context
    (warning,) = _load(tmp_path, about, contexts=1).warnings
    assert "the values of size are not in its profile" in warning
    cuda.assert_nothing_is_held()


def test_memory_that_does_not_suffice_ends_it_and_the_smaller_points_stay(tmp_path, cuda):
    cuda.say("memory 80")  # x and y take 24 bytes each
    loaded = _load(tmp_path, {}, contexts=4)
    assert _points(loaded) == [(1, False), (1, True)]
    (warning,) = loaded.warnings
    assert "does not suffice to measure 2 execution contexts at once (cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY)" in warning
    cuda.assert_nothing_is_held()
    assert cuda.counts()["streams"] == (0, 2)


def test_an_engine_that_cannot_be_captured_is_measured_without_graphs(tmp_path, cuda):
    cuda.say("uncapturable")
    loaded = _load(tmp_path, {}, contexts=2)
    assert _points(loaded) == [(1, False), (2, False)]
    (warning,) = loaded.warnings
    assert "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" in warning
    cuda.assert_nothing_is_held()
    assert cuda.counts()["graphs"] == (0, 0)


def test_a_capture_that_the_engine_refuses_is_ended_and_the_stream_goes_on(tmp_path, cuda):
    loaded = _load(tmp_path, {"refuses": ["captures"]}, contexts=2)
    assert _points(loaded) == [(1, False), (2, False)]
    (warning,) = loaded.warnings
    assert "a loop on the host cannot be captured" in warning
    cuda.assert_nothing_is_held()
    assert cuda.counts()["graphs"] == (0, 1)


@pytest.mark.parametrize(
    ("refuses", "said"),
    [("contexts", "Requested size was 99 bytes"), ("runs", "Measuring 1 execution contexts failed")],
)
def test_what_does_not_run_is_a_warning(tmp_path, cuda, refuses, said):
    loaded = _load(tmp_path, {"refuses": [refuses]}, contexts=2)
    assert loaded.engine["measurements"] == []
    (warning,) = loaded.warnings
    assert said in warning
    cuda.assert_nothing_is_held()


def test_without_cuda_the_engine_is_still_told_of(tmp_path, cuda, monkeypatch, standin_11):
    cuda.say("fail cuInit 100")
    loaded = _load(tmp_path, {}, contexts=1)
    assert loaded.warnings == ["Nothing was measured: cuInit: CUDA_ERROR_NO_DEVICE."]
    monkeypatch.setenv("LD_LIBRARY_PATH", standin_11["LD_LIBRARY_PATH"])
    (warning,) = _load(tmp_path, contexts=1).warnings
    assert "Nothing was measured: cuInit" in warning
    assert "NVIDIA driver library" in warning
    (hidden := tmp_path / "hidden" / "cuda").mkdir(parents=True)
    (hidden / "__init__.py").touch()  # a package of that name without those bindings
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hidden.parent), os.environ["PYTHONPATH"]]))
    (warning,) = _load(tmp_path, contexts=1).warnings
    assert "the package cuda-bindings is not installed" in warning


def test_a_stop_ends_a_measurement(tmp_path, cuda):
    _plan(tmp_path)

    async def stopped():
        child = await Child.spawn(_request(contexts=16, seconds=20.0), tmp_path, lambda _: None)
        while not cuda.counts().get("streams", (0, 0))[1]:
            await asyncio.sleep(0.02)
        child.stop()
        said = [message async for message in child.messages()]
        assert (await child.wait()).code == 0
        return said

    assert isinstance(outcome(run(stopped())), Stopped)
    cuda.assert_nothing_is_held()


def test_a_long_account_is_cut_and_said_to_be(tmp_path):
    layers = [{"Name": f"{n}{'層' * 400}", "Outputs": [{"Datatype": "Float"}]} for n in range(MOST_LAYERS + 5)]
    loaded = _load(tmp_path, {"inspector": {"Layers": layers}})
    assert MOST_BYTES < 6 * 400 * MOST_LAYERS
    assert loaded.engine["inspector"] is None
    assert len(loaded.engine["layers"]) == MOST_LAYERS
    assert max(map(len, loaded.engine["layers"])) < 200
    assert set(loaded.engine["layers"].values()) == {"float32"}
    assert ["5 are left out" in loaded.warnings[0], "left out of the manifest" in loaded.warnings[1]] == [True, True]


@pytest.mark.parametrize(("text", "said"), [("", "says nothing"), ('{"Layers": [NaN]}', "NaN is no number of JSON")])
def test_an_account_that_cannot_be_read_is_a_warning(tmp_path, text, said):
    loaded = _load(tmp_path, {"inspector": text})
    assert (loaded.engine["inspector"], loaded.engine["layers"]) == (None, {})
    (warning,) = loaded.warnings
    assert said in warning


def test_code_in_a_plan_runs_only_where_it_is_allowed(tmp_path):
    failed = _load(tmp_path, {"host_code": True})
    assert (failed.code, "host code is not allowed" in failed.native) == ("engine_unloadable", True)
    assert isinstance(_load(tmp_path, host_code=True), Loaded)


def test_a_plugin_that_is_not_the_approved_one_is_not_loaded(tmp_path):
    (tmp_path / "other.so").write_bytes(b"other")
    plugin = {"name": "deformable", "file": "other.so", "digest": "sha256:" + "0" * 64, "creators": []}
    failed = _load(tmp_path, {}, plugins=[plugin])
    assert (failed.code, failed.where) == ("plugin_unusable", {"plugin": "deformable"})


def test_nvidias_own_runtime_refuses_without_a_gpu_and_says_why(tmp_path, monkeypatch, tensorrt_11):
    monkeypatch.setenv("PYTHONPATH", tensorrt_11["PYTHONPATH"])
    (tmp_path / "plan").write_bytes(b"no plan at all")
    failed = _load(tmp_path)
    assert isinstance(failed, Failed)
    assert failed.code == "engine_unloadable"
    assert "Error Code" in failed.message

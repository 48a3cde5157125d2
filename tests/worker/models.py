"""Models and children that the tests of the worker use: real ones that ship in packages, and small ones made here."""

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from app.worker.messages import OUTCOMES, BuildRequest, Message
from app.worker.process import Child, Exit


def packaged(package: str, *parts: str) -> Path:
    """A file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    assert spec
    assert spec.origin
    return Path(spec.origin).parent.joinpath(*parts)


SQUEEZENET = packaged("onnx", "backend", "test", "data", "light", "light_squeezenet.onnx")
OCR = packaged("rapidocr_onnxruntime", "models", "ch_PP-OCRv4_det_infer.onnx")
SILERO = packaged("silero_vad", "data", "silero_vad_op18_ifless.onnx")  # crashes the builder with the profile below

OCR_PROFILE = {"x": {"min": [1, 3, 64, 64], "opt": [1, 3, 64, 64], "max": [1, 3, 128, 128]}}
CRASH_PROFILE = {
    "input": {"min": [1, 1], "opt": [1, 512], "max": [1, 1024]},
    "state": {"min": [2, 1, 128], "opt": [2, 1, 128], "max": [2, 1, 128]},
}


def chain(length: int, *last: onnx.NodeProto) -> onnx.ModelProto:
    """Relu after Relu on an input ["n", 3]; 2,000 of them build for many seconds, almost all without a callback."""
    names = [f"t{i}" for i in range(length + 1)]
    nodes = [make_node("Relu", [a], [b]) for a, b in pairwise(names)] + list(last)
    given = make_tensor_value_info("t0", TensorProto.FLOAT, ["n", 3])
    made = make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, ["n", 3])
    opsets = [make_opsetid("", 17), make_opsetid("some.domain", 1)]
    return make_model(make_graph(nodes, "chain", [given], [made]), opset_imports=opsets, ir_version=8)


def profile(least: int = 1, most: int = 2) -> dict[str, dict[str, Any]]:
    return {"t0": {"min": [least, 3], "opt": [least, 3], "max": [most, 3]}}


def build_request(**changes: Any) -> BuildRequest:
    fields: dict[str, Any] = {
        "builder": "tensorrt_rtx",
        "model": "model.onnx",
        "plan": "plan",
        "profiles": [profile()],
        "optimization_level": 3,
        "workspace_bytes": 1 << 30,
        "compute_capabilities": ["8.9"],
    }
    return BuildRequest(**fields | changes)


def folder_with(folder: Path, model: Path | onnx.ModelProto) -> Path:
    if isinstance(model, Path):
        (folder / "model.onnx").symlink_to(model)
    else:
        onnx.save(model, folder / "model.onnx")
    return folder


def script(body: str) -> list[str]:
    """A child that does `body` instead of our code; `out(bytes)` writes to its message descriptor, `fd`."""
    start = "import os, sys, time, signal, subprocess\nfd = int(sys.argv[1])\nout = lambda b: os.write(fd, b)\n"
    return [sys.executable, "-c", start + body]


def run(main: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
    return asyncio.run(asyncio.wait_for(main, seconds))


async def run_child(
    request: Any, folder: Path, during: Callable[[Child, Message], None] = lambda child, message: None
) -> tuple[list[Any], Exit, str]:
    """Run our child to its end: what it said, how it ended, what it printed. `during` sees each message as it comes."""
    output: list[bytes] = []
    child = await Child.spawn(request, folder, output.append)
    try:
        messages = []
        async for message in child.messages():
            messages.append(message)
            during(child, message)
        ended = await child.wait()
    finally:
        child.kill()
    return messages, ended, b"".join(output).decode()


def outcome(messages: list[Any]) -> Any:
    """The last message, which is the only outcome."""
    assert [isinstance(m, OUTCOMES) for m in messages] == [False] * (len(messages) - 1) + [True]
    return messages[-1]


def crasher() -> onnx.ModelProto:
    """Crash the builder with `CRASH_PROFILE`: its input goes through a loop first, where no shape doctor follows."""
    model = onnx.load(SILERO)
    _rename_input(model.graph, "input", "looped")
    trips = onnx.numpy_helper.from_array(np.array(1), "trips")
    again = onnx.numpy_helper.from_array(np.array(True), "again")
    value = partial(make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=("batch", "sequence"))
    flag = partial(make_tensor_value_info, elem_type=TensorProto.BOOL, shape=())
    inner = [make_node("Identity", ["go"], ["goes"]), make_node("Identity", ["v"], ["w"])]
    given = [make_tensor_value_info("i", TensorProto.INT64, ()), flag("go"), value("v")]
    body = make_graph(inner, "body", given, [flag("goes"), value("w")])
    model.graph.initializer.extend([trips, again])
    model.graph.node.insert(0, make_node("Loop", ["trips", "again", "input"], ["looped"], body=body))
    return model


def _rename_input(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_input(attribute.g, old, new)

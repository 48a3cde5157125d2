"""Models made for a measurement, in a folder that goes away with it."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR = 17, 9


def chain(path: Path, length: int) -> Path:
    """Write `length` Relus in a row: a small file over which the builder broods in silence."""
    nodes = [helper.make_node("Relu", [f"t{n}"], [f"t{n + 1}"]) for n in range(length)]
    return _save(path, nodes, "t0", f"t{length}", [1, 64])


def heavy(path: Path, size: int) -> Path:
    """Write a model whose one initializer has about `size` bytes that do not compress."""
    columns = size // (4 * 1024)
    weights = np.random.default_rng(0).standard_normal((1024, columns), dtype=np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return _save(path, [node], "x", "y", [1, 1024], [1, columns], [numpy_helper.from_array(weights, "w")])


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    source: str,
    sink: str,
    shape: list[int],
    out: list[int] | None = None,
    weights: list[onnx.TensorProto] | None = None,
) -> Path:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ((source, shape), (sink, out or shape))]
    graph = helper.make_graph(nodes, "made", ends[:1], ends[1:], weights or [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    path.write_bytes(model.SerializeToString())
    return path

"""Models for the real builder, as small or as slow as a test needs."""

from functools import cache
from itertools import count, pairwise

import onnx
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

_names = count()

SLOW = 6000  # Relus: tens of seconds, nearly all of them silent; builds of this length are always stopped


def relus(length: int = 2, batch: int | str = 1) -> bytes:
    """Return a chain of Relus that no test used before; a word for `batch` opens the first axis."""
    return _chain(length, batch, f"g{next(_names)}")


@cache
def same_relus() -> bytes:
    """Return one small model for everyone who needs any model and no build of its own."""
    return _chain(2, 1, "shared")


@cache
def open_relus() -> bytes:
    """Return one small model whose first axis is open and named n."""
    return _chain(2, "n", "open")


def _chain(length: int, batch: int | str, name: str) -> bytes:
    names = [f"t{i}" for i in range(length + 1)]
    nodes = [make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    given = make_tensor_value_info("t0", TensorProto.FLOAT, [batch, 3])
    made = make_tensor_value_info(names[-1], TensorProto.FLOAT, [batch, 3])
    graph = make_graph(nodes, name, [given], [made])
    model: onnx.ModelProto = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content

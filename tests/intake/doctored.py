"""Models that can be computed at some shapes only, with profiles; what the real builder makes of each is tested."""

import numpy as np
from onnx import ModelProto, TensorProto
from onnx.helper import make_function, make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array


def value(name, *dims):
    return make_tensor_value_info(name, TensorProto.FLOAT, dims)


def model(*nodes, inputs, rank, functions=(), **stored) -> ModelProto:
    tensors = [from_array(np.asarray(v), n) for n, v in stored.items()]
    graph = make_graph(nodes, "g", inputs, [value("y", *[None] * rank)], initializer=tensors)
    made = make_model(graph, opset_imports=[make_opsetid("", 17), make_opsetid("my", 1)], ir_version=10)
    made.functions.extend(functions)
    return made


def profile(**triples):
    """`x=([1], [2], [3])` as a profile of plain values."""
    return {name: dict(zip(("min", "opt", "max"), three, strict=True)) for name, three in triples.items()}


def node(op, *names, **attributes):
    *given, made = names
    return make_node(op, given, [made], name=op.lower(), **attributes)


FROZEN = model(node("Reshape", "x", "s", "y"), inputs=[value("x", "n")], rank=2, s=np.array([2, 3]))
FOURS = model(node("Reshape", "x", "s", "y"), inputs=[value("x", "n")], rank=2, s=np.array([-1, 4]))
SUM = model(node("Add", "a", "b", "y"), inputs=[value("a", "n"), value("b", "m")], rank=1)
STACK = model(node("Concat", "a", "b", "y", axis=1), inputs=[value("a", "n", 2), value("b", "m", 2)], rank=2)
WINDOW = model(node("Conv", "x", "w", "y"), inputs=[value("x", 1, 1, "n")], rank=3, w=np.ones((1, 1, 5), np.float32))
POOL = model(node("MaxPool", "x", "y", kernel_shape=[5, 5]), inputs=[value("x", 1, 1, "n", "m")], rank=4)

# x is cut to half its length by arithmetic on its own shape, then added to y: the lengths have to agree
HALVED = model(
    node("Shape", "x", "shape"),
    node("Div", "shape", "two", "half"),
    node("Slice", "x", "zero", "half", "cut"),
    node("Add", "cut", "b", "y"),
    inputs=[value("x", "n"), value("b", "m")],
    rank=1,
    two=np.array([2]),
    zero=np.array([0]),
)

_INNER = [node("Conv", "v", "k", "w")]
CALLED = model(
    make_node("Narrow", ["x", "w"], ["y"], domain="my", name="narrow"),
    inputs=[value("x", 1, 1, "n")],
    rank=3,
    functions=[make_function("my", "Narrow", ["v", "k"], ["w"], _INNER, [make_opsetid("", 17)])],
    w=np.ones((1, 1, 5), np.float32),
)


def _long(*three):
    return [[1, 1, extent] for extent in three]


# name → (model, profile, the real builder builds it)
CASES = {
    "frozen, legal opt": (FROZEN, profile(x=([1], [6], [8])), True),
    "frozen, illegal opt": (FROZEN, profile(x=([1], [4], [8])), False),
    "frozen, out of reach": (FROZEN, profile(x=([1], [2], [4])), False),
    "fours, illegal min": (FOURS, profile(x=([1], [4], [8])), True),
    "fours, illegal opt": (FOURS, profile(x=([4], [5], [8])), False),
    "fours, illegal max": (FOURS, profile(x=([4], [4], [9])), True),
    "sum, illegal min": (SUM, profile(a=([2], [4], [8]), b=([3], [4], [8])), True),
    "sum, illegal opt": (SUM, profile(a=([2], [4], [8]), b=([2], [5], [8])), False),
    "sum, illegal max": (SUM, profile(a=([1], [4], [8]), b=([1], [4], [6])), True),
    "stack, apart": (STACK, profile(a=([1, 2], [4, 2], [4, 2]), b=([5, 2], [6, 2], [6, 2])), False),
    "window, legal": (WINDOW, profile(x=_long(5, 8, 9)), True),
    "window, empty at opt": (WINDOW, profile(x=_long(4, 4, 9)), True),
    "window, illegal opt": (WINDOW, profile(x=_long(1, 2, 9)), False),
    "halved, legal": (HALVED, profile(x=([2], [4], [8]), b=([1], [2], [4])), True),
    "halved, illegal opt": (HALVED, profile(x=([2], [4], [8]), b=([1], [3], [4])), False),
}

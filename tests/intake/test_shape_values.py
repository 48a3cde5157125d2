"""Which inputs decide shapes: our reading of the graph against the real parser's."""

from itertools import count

import numpy as np
import pytest
import tensorrt_rtx as trt
from onnx import ModelProto, TensorProto
from onnx.helper import make_graph, make_node, make_tensor_value_info
from onnx.numpy_helper import from_array

from app.intake.shape_values import shape_value_inputs
from app.intake.walk import Contents
from tests.intake.hostile import model, value


def whole(name="s", shape=(2,), dtype=TensorProto.INT64):
    return value(name, shape, dtype)


def unknown(rank, dtype=TensorProto.FLOAT, name="y"):
    return make_tensor_value_info(name, dtype, [None] * rank)


def made(*nodes, given=None, rank=2, dtype=TensorProto.FLOAT, **stored) -> ModelProto:
    tensors = [from_array(np.array(values, np.int64), name) for name, values in stored.items()]
    inputs = given if given is not None else [value("x", (4, 6)), whole()]
    return model(nodes, inputs=inputs, outputs=[unknown(rank, dtype)], initializer=tensors)


def node(op, *names, **attributes):
    *given, result = names
    return make_node(op, given, [result], **attributes)


BRANCH = make_graph([node("Reshape", "x", "s", "b")], "b", [], [unknown(2, name="b")])

CASES = {
    "reshape": made(node("Reshape", "x", "s", "y")),
    "int32": made(
        node("Cast", "s", "t", to=7), node("Reshape", "x", "t", "y"), given=[value("x"), whole(dtype=TensorProto.INT32)]
    ),
    "expand": made(node("Expand", "x", "s", "y"), given=[value("x", (1, 1)), whole()]),
    "tile": made(node("Tile", "x", "s", "y")),
    "slice": made(node("Slice", "x", "s", "e", "y"), given=[value("x"), whole(), whole("e")]),
    "sizes": made(make_node("Resize", ["x", "", "", "s"], ["y"], mode="nearest")),
    "constant of shape": made(node("ConstantOfShape", "s", "y"), given=[whole()]),
    "pad": made(node("Pad", "x", "s", "y"), given=[value("x"), whole(shape=(4,))]),
    "the axes of a pad": made(node("Pad", "x", "by", "", "s", "y"), given=[value("x"), whole()], by=[1, 1, 1, 1]),
    "a window": made(node("HannWindow", "s", "y"), given=[whole(shape=())], rank=1),
    "range": made(
        node("Range", "a", "b", "d", "y"), given=[whole(n, ()) for n in "abd"], rank=1, dtype=TensorProto.INT64
    ),
    "split": made(
        make_node("Split", ["x", "s"], ["y", "z"], axis=1),
    ),
    "part of a shape": made(
        node("Shape", "x", "h"),
        node("Gather", "h", "zero", "n"),
        node("Concat", "n", "s", "t", axis=0),
        node("Reshape", "x", "t", "y"),
        rank=3,
        zero=[0],
    ),
    "computed": made(node("Mul", "s", "two", "t"), node("Reshape", "x", "t", "y"), two=[2, 2]),
    "chosen": made(
        node("Equal", "s", "two", "e"), node("Where", "e", "s", "two", "t"), node("Reshape", "x", "t", "y"), two=[2, 2]
    ),
    "both": made(
        node("Reshape", "x", "s", "r"),
        node("Cast", "s", "f", to=1),
        node("Add", "r", "f", "y"),
        given=[value("x", (1, 2)), whole()],
    ),
    "only its shape": made(node("Shape", "s", "t"), node("Reshape", "x", "t", "y"), given=[value("x"), value("s")]),
    "an index": made(node("Gather", "x", "s", "y"), given=[value("x"), whole(shape=(1,))]),
    "a diagonal": made(node("Trilu", "x", "s", "y"), given=[value("x"), whole(shape=())]),
    "in a branch": made(
        make_node("If", ["flag"], ["y"], then_branch=BRANCH, else_branch=BRANCH),
        given=[value("x"), whole(), value("flag", (), TensorProto.BOOL)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_the_parser_says(case):
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    network = trt.Builder(logger).create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(CASES[case].SerializeToString()), parser.get_error(0).desc()
    inputs = map(network.get_input, range(network.num_inputs))
    theirs = {tensor.name for tensor in inputs if tensor.is_shape_tensor}
    assert shape_value_inputs(CASES[case].graph, Contents(CASES[case]).nodes) == theirs


def test_a_ring_of_names_ends():
    ring = made(node("Add", "s", "b", "a"), node("Identity", "a", "b"), node("Reshape", "x", "a", "y"))
    assert shape_value_inputs(ring.graph, Contents(ring).nodes) == {"s"}


def test_a_long_way_is_followed():
    names = (f"t{n}" for n in count())
    last, nodes = "s", []
    for name in names:
        nodes.append(node("Identity", last, name))
        last = name
        if len(nodes) == 20_000:
            break
    far = made(*nodes, node("Reshape", "x", last, "y"))
    assert shape_value_inputs(far.graph, Contents(far).nodes) == {"s"}

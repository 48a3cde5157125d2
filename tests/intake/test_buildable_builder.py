"""What inspection calls unbuildable the real parser refuses, and what it lets pass the parser takes."""

import numpy as np
import pytest
import tensorrt_rtx as trt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.helper import make_node
from onnx.numpy_helper import from_array

from app.intake.buildable import problems
from app.intake.walk import Contents
from tests.intake.hostile import model, value
from tests.intake.test_hostile import quantized

DTYPES = [name for name, number in TensorProto.DataType.items() if number]


def parses(made: ModelProto) -> bool:
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    network = trt.Builder(logger).create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    return bool(trt.OnnxParser(network, logger).parse(made.SerializeToString()))


def _typed(name: str) -> ModelProto:
    number = getattr(TensorProto, name)
    opset = 25 if name in ("INT2", "UINT2") else 24
    return model(
        [make_node("Identity", ["x"], ["y"])],
        inputs=[value("x", dtype=number)],
        outputs=[value("y", dtype=number)],
        opset=opset,
    )


@pytest.mark.parametrize("name", DTYPES)
def test_types(name):
    made = _typed(name)
    assert parses(made) == (not problems(made.graph, Contents(made).nodes))


@pytest.mark.parametrize(
    ("zero", "scale"),
    [
        *((zero, 0.1) for zero in (np.int8(0), np.int8(3), np.uint8(0), np.uint8(128), np.int16(0), np.uint16(0))),
        *((np.int8(0), scale) for scale in (0.0, -1.0)),
    ],
)
def test_quantization(zero, scale):
    made = quantized(zero, scale)
    assert parses(made) == (not problems(made.graph, Contents(made).nodes))


def builds(made: ModelProto) -> bool:
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(made.SerializeToString()):
        return False
    return builder.build_serialized_network(network, builder.create_builder_config()) is not None


SHAPE = (2, 4)
SCALE = from_array(np.array(0.5, np.float32), "s")


def _through(node: NodeProto, given: str, made: str, *more: ValueInfoProto) -> ModelProto:
    """One node between an input of the type `given` and an output of the type `made`."""
    ends = [value(name, SHAPE, getattr(TensorProto, dtype)) for name, dtype in (("x", given), ("y", made))]
    return model([node], inputs=[ends[0], *more], outputs=ends[1:], initializer=[SCALE], opset=23)


ENDS = {
    "cast from FP8": _through(make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT), "FLOAT8E4M3FN", "FLOAT"),
    "cast to FP8": _through(make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN), "FLOAT", "FLOAT8E4M3FN"),
    "cast from INT4": _through(make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT), "INT4", "FLOAT"),
    "cast to INT8": _through(make_node("Cast", ["x"], ["y"], to=TensorProto.INT8), "FLOAT", "INT8"),
    "FP8 dequantized": _through(make_node("DequantizeLinear", ["x", "s"], ["y"]), "FLOAT8E4M3FN", "FLOAT"),
    "FP8 as it is": _through(make_node("Identity", ["x"], ["y"]), "FLOAT8E4M3FN", "FLOAT8E4M3FN"),
    "a zero point that is given": _through(
        make_node("QuantizeLinear", ["x", "s", "z"], ["y"]), "FLOAT", "INT8", value("z", (), TensorProto.INT8)
    ),
}


@pytest.mark.parametrize("what", ENDS)
def test_types_that_only_pass_through_and_zero_points_that_are_given(what):
    made = ENDS[what]
    assert builds(made) == (not problems(made.graph, Contents(made).nodes))

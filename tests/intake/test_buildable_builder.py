"""What inspection calls unbuildable the real parser refuses, and what it lets pass the parser takes."""

import numpy as np
import pytest
import tensorrt_rtx as trt
from onnx import ModelProto, TensorProto
from onnx.helper import make_node

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

"""What is a model and still cannot be built: said at upload, so that nobody waits for a builder to say it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from app.intake.sizes import dtype_name
from app.intake.unfit import Finding, finding, listed

MOST_PROBLEMS = 50
LARGEST_READ = 1 << 20  # elements of a scale or zero point

# What the parsers of TensorRT 10, 11 and RTX take as inputs and outputs; they read float64 as float32.
BUILDABLE = frozenset(
    {"float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "bool", "int4"}
    | {"float8e4m3fn", "float4e2m1"}
)

# Types that only pass through: a network's input of one must be dequantized, its output quantized, or merely moved.
PASSING = frozenset({"int4", "float8e4m3fn", "float4e2m1"})


def problems(graph: GraphProto, nodes: Iterable[NodeProto]) -> list[Finding]:
    """Return why no TensorRT builds this graph, as entries of `Inspection.problems`, at most `MOST_PROBLEMS`."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    found = [*_types("input", inputs), *_types("output", graph.output), *_cast(graph)]
    given = {value.name: value for value in inputs}
    for node in nodes:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and node.domain in ("", "ai.onnx"):
            found += [*_quantization(node, stored), *_zero_given(node, given)]
        if len(found) >= MOST_PROBLEMS:
            break
    return found[:MOST_PROBLEMS]


def _types(side: str, values: Iterable[Any]) -> Iterator[Finding]:
    for value in values:
        kind = value.type.WhichOneof("value")
        dtype = dtype_name(value.type.tensor_type.elem_type) if kind == "tensor_type" else str(kind).split("_")[0]
        if dtype not in BUILDABLE:
            message = f"The {side} {value.name[:80]} is of type {dtype}, which TensorRT does not take."
            yield finding("type_unsupported", message, **{side: value.name[:200], "dtype": dtype})


def _cast(graph: GraphProto) -> Iterator[Finding]:
    """Casts of an input from, or to an output of, a type that is only for quantization."""
    types = {v.name: dtype_name(v.type.tensor_type.elem_type) for v in (*graph.input, *graph.output)}
    ends = {"input": {v.name for v in graph.input}, "output": {v.name for v in graph.output}}
    for node in graph.node:
        if node.op_type not in ("Cast", "CastLike") or node.domain not in ("", "ai.onnx"):
            continue
        for side, names in (("input", node.input[:1]), ("output", node.output[:1])):
            for name in ends[side].intersection(names):
                if types[name] in PASSING:
                    instead = "dequantized" if side == "input" else "quantized to"
                    message = (
                        f"The {side} {name[:80]} is of type {types[name]} and cast, where TensorRT wants it {instead}."
                    )
                    yield finding("type_unsupported", message, **{side: name[:200], "dtype": types[name]})


def _quantization(node: NodeProto, stored: dict[str, TensorProto]) -> Iterator[Finding]:
    """TensorRT quantizes symmetrically: scales above 0, zero points of 0, and no 16-bit values."""
    scale, zero = (stored.get(node.input[i]) if len(node.input) > i else None for i in (1, 2))
    where = {"node": node.name[:200], "op": node.op_type}
    called = f"{node.op_type} {node.name[:80] or listed(list(node.output))}"
    if zero is not None and dtype_name(zero.data_type) in ("int16", "uint16"):
        yield finding("quantization_unsupported", f"{called} quantizes to 16 bits.", **where)
    elif zero is not None and _any(zero, lambda values: values != 0):
        yield finding("quantization_unsupported", f"{called} has a zero point other than 0.", **where)
    if scale is not None and _any(scale, lambda values: ~(values > 0)):
        yield finding("quantization_unsupported", f"{called} has a scale that is not above 0.", **where)


def _zero_given(node: NodeProto, inputs: Mapping[str, Any]) -> Iterator[Finding]:
    given = inputs.get(node.input[2]) if len(node.input) > 2 else None
    if given is not None and dtype_name(given.type.tensor_type.elem_type) != "float8e4m3fn":
        called = f"{node.op_type} {node.name[:80] or listed(list(node.output))}"
        where = {"node": node.name[:200], "op": node.op_type, "input": given.name[:200]}
        message = (
            f"{called} takes its zero point from the input {given.name[:80]}; TensorRT wants it stored in the model."
        )
        yield finding("quantization_unsupported", message, **where)


def _any(tensor: TensorProto, wrong: Any) -> bool:
    count = 1
    for extent in tensor.dims:
        count *= extent
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data or not 0 < count <= LARGEST_READ:
        return False
    try:
        values = numpy_helper.to_array(tensor).astype(np.float32)
    except (ValueError, TypeError):  # the checker says what is wrong with it
        return False
    return bool(np.any(wrong(values)))

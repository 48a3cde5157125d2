"""Read an ONNX file once: say what is in it, or why it cannot be a model. Runs in a child: the file is a stranger's."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from app.intake.buildable import problems
from app.intake.calls import check_calls
from app.intake.external import check_external
from app.intake.looks import looks_like
from app.intake.shape_values import shape_value_inputs
from app.intake.sizes import declared_bytes, dtype_name
from app.intake.unfit import Unfit
from app.intake.versions import check_versions
from app.intake.walk import Contents, plain_domain

__all__ = ["Unfit", "inspect"]

_LARGEST = (1 << 31) - 1  # bytes of a protobuf message
_WIDEST = 8  # bytes a value may take in memory for each byte it takes in the file (a small int64 is one byte there)


def inspect(path: str, max_opset: int, files: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the fields of `trtforge.contract.models.Inspection`. `path` should be relative: it may stand in messages.

    `files` are the declared companions in the working folder, name → bytes; without them weights elsewhere are refused
    and never opened. Nodes and operators are counted through subgraphs and once in each function's body; operators of
    other domains than ONNX's are "domain:Op". `parameter_bytes` counts initializers and tensors held by attributes
    (those of Constant nodes), from their declared extents. Raises `Unfit`.
    """
    model = _load(path)
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise Unfit("not_an_onnx_model", f"The file holds no graph{looks_like(path)}.")
    if not model.graph.output:
        raise Unfit("not_an_onnx_model", "The graph has no outputs.")
    opset = check_versions(model, max_opset)
    contents = Contents(model)
    check_calls(model)
    outside = check_external(contents.tensors, files or {})
    inspection = _describe(model, contents, opset, Path(path).stat().st_size + outside)
    _check(model, path, bool(outside))
    return inspection


def _load(path: str) -> ModelProto:
    size = Path(path).stat().st_size
    if size == 0:
        raise Unfit("not_an_onnx_model", "The file is empty.")
    if size > _LARGEST:
        raise Unfit("not_an_onnx_model", f"The file has {size} bytes and an ONNX file at most {_LARGEST}.")
    try:
        return onnx.load(path, load_external_data=False)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Unfit("not_an_onnx_model", f"The file is not an ONNX protobuf{looks_like(path)}.") from error


def _describe(model: ModelProto, contents: Contents, opset: dict[str, int], size: int) -> dict[str, Any]:
    graph = model.graph
    decide_shapes = shape_value_inputs(graph, contents.nodes)
    stored = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    return {
        "opset": opset,
        "ir_version": model.ir_version,
        "producer": f"{model.producer_name} {model.producer_version}".strip()[:200],
        "node_count": len(contents.nodes),
        "parameter_bytes": _parameter_bytes(contents, size),
        "operators": dict(Counter(_operator(node) for node in contents.nodes).most_common()),
        "inputs": [
            _tensor(value) | {"shape_values": value.name in decide_shapes}
            for value in graph.input
            if value.name not in stored
        ],
        "outputs": [_tensor(value) for value in graph.output],
        "problems": problems(graph, contents.nodes),
    }


def _operator(node: NodeProto) -> str:
    domain = plain_domain(node.domain)
    return f"{domain}:{node.op_type}" if domain else node.op_type


def _parameter_bytes(contents: Contents, size: int) -> int:
    total = 0
    for name, tensor in contents.tensors:
        total += declared_bytes(tensor)
        if total > _WIDEST * size or any(extent < 0 for extent in tensor.dims):
            raise Unfit("model_invalid", f"Tensor {name[:80]} declares more values than the file can hold.")
    return total


def _tensor(value: ValueInfoProto) -> dict[str, Any]:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return {"name": value.name, "dtype": (kind or "undefined").removesuffix("_type"), "shape": None, "axes": None}
    tensor = value.type.tensor_type
    extents = _extents(tensor) if tensor.HasField("shape") else None
    return {
        "name": value.name,
        "dtype": dtype_name(tensor.elem_type),
        "shape": [extent for extent, _ in extents] if extents is not None else None,
        "axes": [axis for _, axis in extents] if extents is not None else None,
    }


def _extents(tensor: TypeProto.Tensor) -> list[tuple[int | None, str | None]]:
    """(extent, name) of each axis; an open one without a name is (None, None). Some exporters write −1 for open."""
    return [
        (dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None, dim.dim_param or None)
        for dim in tensor.shape.dim
    ]


def _check(model: ModelProto, path: str, outside: bool) -> None:
    """Check by path, because a loaded model would have to be serialized again, which fails above 2 GiB.

    The checker refuses linked weights, whoever linked them; those are checked by us, and it gets the rest.
    """
    if outside:
        _forget_weights(model)
    try:
        onnx.checker.check_model(model if outside else path)
    except (onnx.checker.ValidationError, ValueError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        raise Unfit("model_invalid", f"The model breaks a rule of ONNX: {first.strip()[:500]}") from error


def _forget_weights(model: ModelProto) -> None:
    for _, tensor in Contents(model).tensors:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.ClearField("data_location")
            del tensor.external_data[:]
            tensor.dims[:] = [0]

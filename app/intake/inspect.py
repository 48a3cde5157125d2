"""Read an ONNX file once: say what is in it, or why it cannot be a model. Runs in a child: the file is a stranger's."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from app.intake.looks import looks_like

_MOST_NAMED = 20  # tensors or files that a message lists
_LARGEST = (1 << 31) - 1  # bytes of a protobuf message
_WIDEST = 8  # bytes a value may take in memory for each byte it takes in the file (a small int64 is one byte there)

# Names of element types: ONNX's own in lower case, except that the two C names say their width.
_DTYPES = {number: name.lower() for name, number in TensorProto.DataType.items()}
_DTYPES |= {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}

_BITS = {  # per value; strings count nothing
    **dict.fromkeys(("uint2", "int2"), 2),
    **dict.fromkeys(("uint4", "int4", "float4e2m1"), 4),
    **dict.fromkeys(("float6e2m3", "float6e3m2"), 6),
    **dict.fromkeys(("int8", "uint8", "bool", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 64),
    "float8e8m0": 8,
    "complex128": 128,
}


class Unfit(Exception):
    """The file cannot be served as a model: a code of `trtforge.contract.failures` with a status, and what is wrong."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def inspect(path: str, max_opset: int) -> dict[str, Any]:
    """Return the fields of `trtforge.contract.models.Inspection`. `path` should be relative: it may stand in messages.

    Nodes and operators are counted through subgraphs and once in each function's body; operators of other domains than
    ONNX's are "domain:Op". `parameter_bytes` counts initializers and tensors held by attributes (those of Constant
    nodes), from their declared extents. Weights in other files are refused and never opened. Raises `Unfit`.
    """
    model = _load(path)
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise Unfit("not_an_onnx_model", f"The file holds no graph{looks_like(path)}.")
    if not model.graph.output:
        raise Unfit("not_an_onnx_model", "The graph has no outputs.")
    opset = _opset(model, max_opset)
    nodes = list(_nodes(model))
    _no_external_data(model, nodes)
    inspection = _describe(model, nodes, opset, Path(path).stat().st_size)
    _check(path)
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


def _opset(model: ModelProto, highest: int) -> dict[str, int]:
    if model.ir_version > onnx.IR_VERSION:
        raise Unfit(
            "version_unsupported",
            f"The model has IR version {model.ir_version}; {onnx.IR_VERSION} is the newest known here.",
        )
    for function in model.functions:
        _within(_versions(function), highest, f"Function {function.name[:100]}")
    opset = _versions(model)
    _within(opset, highest, "The model")
    return opset


def _versions(declares: ModelProto | FunctionProto) -> dict[str, int]:
    versions: dict[str, int] = {}
    for entry in declares.opset_import:
        domain = _plain(entry.domain)
        versions[domain] = max(entry.version, versions.get(domain, 0))
    return versions


def _within(opset: dict[str, int], highest: int, who: str) -> None:
    if opset.get("", 0) > highest:
        raise Unfit(
            "version_unsupported", f"{who} has opset {opset['']}; opset {highest} is the newest the builder knows."
        )


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node, of subgraphs too, and of each function once: calls are not followed, so nothing can recurse."""
    open_lists = [model.graph.node, *(function.node for function in model.functions)]
    while open_lists:
        for node in open_lists.pop():
            yield node
            open_lists.extend(graph.node for graph in _subgraphs(node))


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH or attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _graphs(model: ModelProto, nodes: list[NodeProto]) -> Iterator[GraphProto]:
    yield model.graph
    for node in nodes:
        yield from _subgraphs(node)


def _tensors(model: ModelProto, nodes: list[NodeProto]) -> Iterator[tuple[str, TensorProto]]:
    """Every stored tensor, with the name of who holds it."""
    for graph in _graphs(model, nodes):
        for tensor in graph.initializer:
            yield tensor.name, tensor
        for sparse in graph.sparse_initializer:
            yield sparse.values.name, sparse.values
            yield sparse.values.name, sparse.indices
    for node in nodes:
        for attribute in node.attribute:
            holder = node.name or (node.output[0] if node.output else node.op_type)
            for tensor in (*((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors):
                yield holder, tensor
            for sparse in (
                *((attribute.sparse_tensor,) if attribute.HasField("sparse_tensor") else ()),
                *attribute.sparse_tensors,
            ):
                yield holder, sparse.values
                yield holder, sparse.indices


def _no_external_data(model: ModelProto, nodes: list[NodeProto]) -> None:
    names, files = [], set()
    for name, tensor in _tensors(model, nodes):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            names.append(name)
            files |= {_last_part(entry.value) for entry in tensor.external_data if entry.key == "location"}
    if names:
        where = f" in {_list(sorted(files))}" if files else ""
        raise Unfit("external_data_missing", f"{len(names)} tensors are kept outside the file{where}: {_list(names)}.")


def _last_part(location: str) -> str:
    """A location may be a path of the machine that wrote it."""
    return location.replace("\\", "/").rsplit("/", 1)[-1]


def _list(names: list[str]) -> str:
    shown = ", ".join(name[:80] for name in names[:_MOST_NAMED])
    return shown + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


def _describe(model: ModelProto, nodes: list[NodeProto], opset: dict[str, int], size: int) -> dict[str, Any]:
    graph = model.graph
    stored = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    return {
        "opset": opset,
        "ir_version": model.ir_version,
        "producer": f"{model.producer_name} {model.producer_version}".strip()[:200],
        "node_count": len(nodes),
        "parameter_bytes": _parameter_bytes(model, nodes, size),
        "operators": dict(Counter(_operator(node) for node in nodes).most_common()),
        "inputs": [_tensor(value) for value in graph.input if value.name not in stored],
        "outputs": [_tensor(value) for value in graph.output],
    }


def _operator(node: NodeProto) -> str:
    domain = _plain(node.domain)
    return f"{domain}:{node.op_type}" if domain else node.op_type


def _parameter_bytes(model: ModelProto, nodes: list[NodeProto], size: int) -> int:
    total = 0
    for name, tensor in _tensors(model, nodes):
        total += _declared_bytes(tensor)
        if total > _WIDEST * size or any(extent < 0 for extent in tensor.dims):
            raise Unfit("model_invalid", f"Tensor {name[:80]} declares more values than the file can hold.")
    return total


def _declared_bytes(tensor: TensorProto) -> int:
    count = 1
    for extent in tensor.dims:
        count *= extent
    return (count * _BITS.get(_dtype(tensor.data_type), 0) + 7) // 8


def _dtype(number: int) -> str:
    return str(_DTYPES.get(number, f"unknown_{number}"))


def _tensor(value: ValueInfoProto) -> dict[str, Any]:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return {"name": value.name, "dtype": (kind or "undefined").removesuffix("_type"), "shape": None, "axes": None}
    tensor = value.type.tensor_type
    extents = _extents(tensor) if tensor.HasField("shape") else None
    return {
        "name": value.name,
        "dtype": _dtype(tensor.elem_type),
        "shape": [extent for extent, _ in extents] if extents is not None else None,
        "axes": [axis for _, axis in extents] if extents is not None else None,
    }


def _extents(tensor: TypeProto.Tensor) -> list[tuple[int | None, str | None]]:
    """(extent, name) of each axis; an open one without a name is (None, None). Some exporters write −1 for open."""
    return [
        (dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None, dim.dim_param or None)
        for dim in tensor.shape.dim
    ]


def _check(path: str) -> None:
    """By path, because the checker would have to serialize a loaded model again, and cannot above 2 GiB."""
    try:
        onnx.checker.check_model(path)
    except (onnx.checker.ValidationError, ValueError) as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "no reason given")
        raise Unfit("model_invalid", f"The model breaks a rule of ONNX: {first.strip()[:500]}") from error

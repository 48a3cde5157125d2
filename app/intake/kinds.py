"""What is known of tensors while a graph is followed: type, extents, and small values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, numpy_helper

from app.intake.sizes import bytes_of, dtype_name

SMALL = 256  # elements of a value that is worth computing with

Dims = tuple[int | None, ...]


@dataclass(frozen=True)
class Kind:
    """Element type and extents; `dims` None: not even the rank is known."""

    dtype: int
    dims: Dims | None

    @cached_property
    def count(self) -> int | None:
        """Elements, None when an extent is open."""
        return None if self.dims is None or None in self.dims else prod(d for d in self.dims if d is not None)

    @cached_property
    def bytes(self) -> int:
        return bytes_of(self.count or 0, dtype_name(self.dtype))

    def __str__(self) -> str:
        return "×".join("?" if d is None else str(d) for d in self.dims or ()) or "scalar"


@dataclass
class Scope:
    """Names of one graph or function body; a subgraph sees its parents' too."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    parent: "Scope | None" = None

    def kind(self, name: str) -> Kind | None:
        found = self.kinds.get(name)
        return self.parent.kind(name) if found is None and self.parent else found

    def value(self, name: str) -> np.ndarray | None:
        if name in self.kinds:
            return self.values.get(name)
        return self.parent.value(name) if self.parent else None

    def inside(self, stored: "Scope") -> "Scope":
        return Scope(dict(stored.kinds), dict(stored.values), self)

    def hold(self, name: str, tensor: TensorProto) -> None:
        """Know a stored tensor, and its values when they are small and in the file."""
        self.kinds[name] = kind = Kind(tensor.data_type, tuple(tensor.dims))
        inside = tensor.data_location != TensorProto.EXTERNAL and tensor.data_type != TensorProto.STRING
        if inside and (kind.count or 0) <= SMALL:
            self.values[name] = numpy_helper.to_array(tensor)

    def adopt(self, name: str, other: "Scope", theirs: str) -> None:
        """Know under `name` what another scope knows as `theirs`."""
        if (kind := other.kind(theirs)) is not None:
            self.kinds[name] = kind
            if (value := other.value(theirs)) is not None:
                self.values[name] = value


def stored_in(graph: GraphProto) -> Scope:
    scope = Scope()
    for tensor in graph.initializer:
        scope.hold(tensor.name, tensor)
    for sparse in graph.sparse_initializer:
        scope.kinds[sparse.values.name] = Kind(sparse.values.data_type, tuple(sparse.dims))
    return scope


def hold_constant(node: NodeProto, scope: Scope) -> None:
    for attribute in node.attribute:
        if attribute.name == "value":
            scope.hold(node.output[0], attribute.t)
        elif attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
            dtype = np.int64 if "int" in attribute.name else np.float32
            value = np.array(onnx.helper.get_attribute_value(attribute), dtype)
            scope.hold(node.output[0], numpy_helper.from_array(value))


def given_scope(
    graph: GraphProto, stored: Scope, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[int]]
) -> Scope:
    """Return the scope in which a graph begins, with these extents of its inputs and values of some."""
    scope = Scope(dict(stored.kinds), dict(stored.values))
    for given in graph.input:
        if given.name in scope.kinds or given.type.WhichOneof("value") != "tensor_type":
            continue
        shape = shapes.get(given.name)
        known = kind_of(given.type)
        scope.kinds[given.name] = kind = Kind(known.dtype, tuple(shape)) if shape is not None else known
        if given.name in values and kind.dims is not None and kind.count is not None:
            flat = np.array(values[given.name], onnx.helper.tensor_dtype_to_np_dtype(kind.dtype))
            scope.values[given.name] = flat.reshape([d or 0 for d in kind.dims])
    return scope


def kind_of(proto: TypeProto) -> Kind:
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return Kind(tensor.elem_type, None)
    dims = (d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim)
    return Kind(tensor.elem_type, tuple(dims))


@lru_cache(4096)
def proto_of(kind: Kind) -> TypeProto:
    return onnx.helper.make_tensor_type_proto(kind.dtype, kind.dims)

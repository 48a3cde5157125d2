"""Which inputs a builder needs values of, because they decide shapes. Read from the graph: no parser can crash on it."""

from collections.abc import Iterable

from onnx import GraphProto, NodeProto, TensorProto

# Operands that say a shape. The builder takes a Resize's sizes, not its scales; axes must be constants anyway.
_SAYS_A_SHAPE: dict[str, tuple[int, ...]] = {
    "BlackmanWindow": (0,),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (3,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Tile": (1,),
    "TopK": (1,),
}

# Operators whose output is computed from the values of all their inputs; Shape and Size need none.
_COMPUTES = frozenset(
    (
        "Abs",
        "Add",
        "And",
        "Cast",
        "Ceil",
        "Concat",
        "Div",
        "Equal",
        "Expand",
        "Floor",
        "Gather",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "Reshape",
        "Round",
        "ScatterElements",
        "ScatterND",
        "Sign",
        "Slice",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
        "Xor",
    )
)
_INTEGERS = frozenset({TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL})


def shape_value_inputs(graph: GraphProto, nodes: Iterable[NodeProto]) -> set[str]:
    """Return the inputs of `graph`, integers of rank 0 or 1, whose values flow into a shape somewhere in `nodes`.

    Subgraphs count, as their names are the graph's; calls of functions are not followed.
    """
    inputs = {value.name for value in graph.input if _may_be_values(value)}
    if not inputs:
        return set()
    nodes = [node for node in nodes if node.domain in ("", "ai.onnx")]
    made_by = {name: node for node in nodes for name in node.output}
    waiting = [node.input[at] for node in nodes for at in _SAYS_A_SHAPE.get(node.op_type, ()) if at < len(node.input)]
    seen = set(waiting)
    while waiting:
        node = made_by.get(waiting.pop())
        if node is not None and node.op_type in _COMPUTES:
            fresh = [name for name in node.input if name not in seen]
            seen.update(fresh)
            waiting += fresh
    return inputs & seen


def _may_be_values(value: object) -> bool:
    tensor = value.type.tensor_type  # type: ignore[attr-defined]
    return tensor.elem_type in _INTEGERS and tensor.HasField("shape") and len(tensor.shape.dim) < 2

"""What one node makes of its inputs: ONNX's own inference, and the rules of builders that it does not know."""

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import InferenceError, infer_node_outputs

from app.intake.kinds import SMALL, Kind, Scope, kind_of, proto_of
from app.intake.steps import Opset, Step
from app.intake.walk import plain_domain

Kinds = Sequence[Kind | None]
Values = Sequence[np.ndarray | None]

_WINDOWS = frozenset({"Conv", "AveragePool", "MaxPool", "LpPool"})
_NOT_COMPUTED = frozenset({"If", "Loop", "Scan", "SequenceMap", "Shape", "Size", "NonZero", "Unique"})
_RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")


class Broken(Exception):
    """This layer cannot be computed at these shapes.

    `below_nothing`: a window has less than nothing to slide over. `frozen`: a Reshape to constant extents. `unsure`: it
    lies in a branch that may not be taken.
    """

    unsure = False

    def __init__(
        self, step: Step, why: str, kinds: Kinds, *, below_nothing: bool = False, frozen: bool = False
    ) -> None:
        super().__init__(why)
        self.below_nothing, self.frozen = below_nothing, frozen
        self.name, self.op, self.why = step.name, str(step.node.op_type), why
        self.given = {name: str(kind) for name, kind in zip(step.node.input, kinds, strict=True) if name and kind}


def made_by(
    step: Step, kinds: Kinds, values: Values, opset: Opset, constants: Container[str]
) -> list[tuple[str, Kind]]:
    """Return the outputs as far as they are known. Raises `Broken` when inputs that are all known do not fit."""
    node = step.node
    if any(kind is None for kind, name in zip(kinds, node.input, strict=True) if name):
        return []
    try:
        protos = _infer(node, kinds, values, opset)
    except InferenceError as error:
        if all(kind is None or kind.count is not None for kind in kinds) and _depends_on_extents(node, kinds, opset):
            raise Broken(step, _reason(error), kinds, frozen=_is_frozen(node, constants)) from error
        return []
    except Exception:  # an operator of another domain, or one in a form that inference does not take
        return []
    found = [(name, kind_of(proto)) for name, proto in protos.items() if proto.tensor_type.elem_type]
    if node.op_type in _WINDOWS and found:
        found[0] = found[0][0], _slid(step, kinds, found[0][1])
    _fits(step, kinds, [kind for _, kind in found], constants)
    return found


def measured(node: NodeProto, kind: Kind) -> np.ndarray | None:
    """Return what Shape or Size says of a tensor."""
    if kind.count is None:
        return None
    dims = np.array(kind.dims, np.int64)
    if node.op_type == "Size":
        return np.array(kind.count, np.int64)
    bounds = {a.name: a.i for a in node.attribute}
    return dims[bounds.get("start", 0) : bounds.get("end", len(dims))]


class Computer:
    """Computes small values with ONNX's reference implementation, one evaluator per step."""

    def __init__(self) -> None:
        self._evaluators: dict[Step, ReferenceEvaluator] = {}

    def compute(self, step: Step, values: Values, scope: Scope, opset: Opset) -> None:
        """Put the values of the step's outputs into `scope`, where inputs are known and outputs small."""
        node = step.node
        if node.op_type in _NOT_COMPUTED or node.op_type.startswith(_RANDOM):
            return
        kinds = [scope.kinds.get(name) for name in node.output if name]
        if not all(kind and kind.count is not None and kind.count <= SMALL for kind in kinds):
            return
        try:
            if step not in self._evaluators:
                self._evaluators[step] = ReferenceEvaluator(node, opsets=dict(opset))
            feeds = {name: value for name, value in zip(node.input, values, strict=True) if name}
            made = self._evaluators[step].run(None, feeds)
        except Exception:  # operators that the reference lacks, or does not take in this form
            return
        for name, result in zip(node.output, made, strict=False):
            if name and isinstance(result, np.ndarray | np.generic):
                scope.values[name] = np.asarray(result)


def _infer(node: NodeProto, kinds: Kinds, values: Values, opset: Opset) -> dict[str, Any]:
    domain = plain_domain(node.domain)
    schema = onnx.defs.get_schema(node.op_type, opset.get(domain, 1), domain)
    types = {name: proto_of(kind) for name, kind in zip(node.input, kinds, strict=True) if name and kind}
    small = {name: numpy_helper.from_array(v) for name, v in zip(node.input, values, strict=True) if v is not None}
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opset.items()]
    made: dict[str, Any] = infer_node_outputs(schema, node, types, small, opset_imports=imports)
    return made


def _depends_on_extents(node: NodeProto, kinds: Kinds, opset: Opset) -> bool:
    """Tell whether inference takes the node once extents are open. What is wrong at any is the parser's to say."""
    opened = [kind and Kind(kind.dtype, (None,) * len(kind.dims or ())) for kind in kinds]
    try:
        _infer(node, opened, [None] * len(opened), opset)
    except InferenceError:
        return False
    return True


def _slid(step: Step, kinds: Kinds, made: Kind) -> Kind:
    """Extents of a window's output by TensorRT's rule: 0 is an empty tensor; below 0 the builder itself crashes.

    ONNX's inference rounds both up to 0.
    """
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in step.node.attribute}
    dims = kinds[0].dims if kinds[0] else None
    weights = kinds[1].dims if step.node.op_type == "Conv" and len(kinds) > 1 and kinds[1] else ()
    window = attributes.get("kernel_shape") or (weights or ())[2:]
    if dims is None or made.dims is None or not window or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        return made
    rank = len(window)
    pads, strides = attributes.get("pads") or [0] * 2 * rank, attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    result = list(made.dims)
    for axis, (size, stride, dilation) in enumerate(zip(window, strides, dilations, strict=True)):
        extent = dims[axis + 2]
        if extent is None or size is None:
            continue
        room = extent + pads[axis] + pads[axis + rank] - (size - 1) * dilation - 1
        if room < 0:
            result[axis + 2] = room // stride + 1
    return Kind(made.dtype, tuple(result))


def _fits(step: Step, kinds: Kinds, made: Sequence[Kind], constants: Container[str]) -> None:
    for kind in made:
        if any(extent is not None and extent < 0 for extent in kind.dims or ()):
            raise Broken(step, f"its output would have the extents {kind}", kinds, below_nothing=True)
    if step.node.op_type == "Reshape" and made and kinds[0]:
        before, after = kinds[0].count, made[0].count
        if before is not None and after is not None and before != after:
            why = f"{before} elements do not fit into the extents {made[0]}"
            raise Broken(step, why, kinds, frozen=_is_frozen(step.node, constants))


def _is_frozen(node: NodeProto, constants: Container[str]) -> bool:
    return node.op_type == "Reshape" and len(node.input) > 1 and node.input[1] in constants


def _reason(error: Exception) -> str:
    text = str(error).replace("\n", " ")
    return text.rsplit("]", 1)[-1].strip()[:300] or "its inputs do not fit together"

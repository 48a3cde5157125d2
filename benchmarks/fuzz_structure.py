"""Changes to the structure of a model, each of which leaves bytes that are a protobuf: `change(chance, model)`."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

Chance = random.Random
NUMBERS = (0, 1, -1, 2, 7, 127, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
NAMES = ("", ".", "..", "x" * 5000, "a\0b", "\ud7ff\uffff", "../../etc/passwd", "%s%n", "x", "y", "\n")
PLACES = (
    "",
    ".",
    "..",
    "w.bin",
    "/etc/passwd",
    "../store/trtforge.db",
    "model.onnx",
    "/proc/self/mem",
    "C:\\w",
    "a\0b",
)
COUNTS = ("", "0", "-1", "1", "4096", "9" * 18, "9" * 40, "1e3", "0x10", " 5", "nan")
DEEP = (1, 3, 20, 60, 150, 400, 3000)


def dims(chance: Chance, model: ModelProto) -> None:
    """Another extent of an input, an output, a value between, or a stored tensor."""
    if model.graph.initializer and chance.random() < 0.4:
        tensor = chance.choice(model.graph.initializer)
        tensor.dims[:] = [chance.choice((*tensor.dims, chance.choice(NUMBERS))) for _ in range(chance.randint(0, 9))]
        return
    values = [v for v in (*model.graph.input, *model.graph.output, *model.graph.value_info) if _tensor(v)]
    if not values:
        return
    shape = chance.choice(values).type.tensor_type.shape
    if not shape.dim or chance.random() < 0.2:
        shape.dim.add()
    dim = chance.choice(shape.dim)
    if chance.random() < 0.5:
        dim.dim_param = chance.choice(("n", "batch", *NAMES))
    else:
        dim.dim_value = chance.choice(NUMBERS)


def dtype(chance: Chance, model: ModelProto) -> None:
    values = [v for v in (*model.graph.input, *model.graph.output) if _tensor(v)]
    kind = chance.choice((0, 8, 16, 22, 25, 99, -1, *range(1, 17)))
    if model.graph.initializer and chance.random() < 0.5:
        chance.choice(model.graph.initializer).data_type = kind
    elif values:
        chance.choice(values).type.tensor_type.elem_type = kind


def kind(chance: Chance, model: ModelProto) -> None:
    """A value that is no tensor, or a type within types."""
    if not model.graph.input:
        return
    type_ = chance.choice(model.graph.input).type
    type_.Clear()
    for _ in range(chance.choice((0, 1, 5, 40))):
        type_ = chance.choice((type_.sequence_type, type_.optional_type)).elem_type
    type_.tensor_type.elem_type = 1


def name(chance: Chance, model: ModelProto) -> None:
    nodes = _nodes(model)
    target: Any = chance.choice(
        [*model.graph.input, *model.graph.output, *model.graph.initializer, *nodes, model.graph]
    )
    target.name = chance.choice(NAMES)


def attribute(chance: Chance, model: ModelProto) -> None:
    node = _node(chance, model)
    if node is None:
        return
    if not node.attribute or chance.random() < 0.2:
        node.attribute.append(helper.make_attribute(chance.choice(("axis", "value", "to", "body", "x")), 1))
    one = chance.choice(node.attribute)
    match chance.randint(0, 5):
        case 0:
            one.i = chance.choice(NUMBERS)
        case 1:
            one.ints[:] = [chance.choice(NUMBERS) for _ in range(chance.choice((0, 1, 4, 5000)))]
        case 2:
            one.type = chance.choice(list(AttributeProto.AttributeType.values()))
        case 3:
            one.f = chance.choice((float("nan"), float("inf"), -1.0, 1e38))
        case 4:
            one.s = chance.choice((b"", b"SAME_UPPER", b"\xff\xfe", b"x" * 3000))
        case _:
            node.attribute.append(one) if chance.random() < 0.5 else node.attribute.remove(one)


def opset(chance: Chance, model: ModelProto) -> None:
    match chance.randint(0, 3):
        case 0:
            model.ir_version = chance.choice((0, 1, 3, 10, 11, 99, -1, 2**62))
        case 1 if model.opset_import:
            chance.choice(model.opset_import).version = chance.choice((0, 1, 7, 13, 18, 25, 28, 29, 99, -1, 2**62))
        case 2:
            model.opset_import.add(
                domain=chance.choice(("", "ai.onnx", "ai.onnx.ml", "x")), version=chance.randint(0, 30)
            )
        case _:
            del model.opset_import[:]


def edge(chance: Chance, model: ModelProto) -> None:
    """An input that nobody makes, a cycle, an output made twice, one too many, or none."""
    node = _node(chance, model)
    if node is None:
        return
    made = [name for other in _nodes(model) for name in other.output]
    new = chance.choice(("", "nowhere", *made[:50]))
    side = node.input if chance.random() < 0.7 else node.output
    match chance.randint(0, 2):
        case 0 if side:
            side[chance.randrange(len(side))] = new
        case 1 if side:
            del side[chance.randrange(len(side))]
        case _:
            side.extend([new] * chance.choice((1, 1, 300)))


def operator(chance: Chance, model: ModelProto) -> None:
    node = _node(chance, model)
    if node is None:
        return
    if chance.random() < 0.8:
        node.op_type = chance.choice(_operators())
    else:
        node.domain = chance.choice(("ai.onnx", "ai.onnx.ml", "com.microsoft", "trt.plugins", "x" * 2000))


def outside(chance: Chance, model: ModelProto) -> None:
    """Weights said to be in a file."""
    tensor = (
        chance.choice(model.graph.initializer) if model.graph.initializer else model.graph.initializer.add(name="w")
    )
    tensor.data_location = TensorProto.EXTERNAL
    for key in chance.choices(("location", "offset", "length", "checksum", "other"), k=chance.randint(0, 4)):
        tensor.external_data.add(key=key, value=chance.choice(PLACES if key == "location" else COUNTS))


def stored_bytes(chance: Chance, model: ModelProto) -> None:
    """Too few or too many bytes in a tensor, or several kinds of them."""
    tensor = (
        chance.choice(model.graph.initializer) if model.graph.initializer else model.graph.initializer.add(name="w")
    )
    match chance.randint(0, 3):
        case 0:
            tensor.raw_data = tensor.raw_data[: chance.randint(0, len(tensor.raw_data))]
        case 1:
            tensor.float_data.extend([1.0] * chance.choice((1, 1000)))
        case 2:
            tensor.segment.begin, tensor.segment.end = chance.choice(NUMBERS), chance.choice(NUMBERS)
        case _:
            tensor.string_data.extend([b"\xff"] * chance.choice((1, 100)))


def functions(chance: Chance, model: ModelProto) -> None:
    """Functions that call themselves, one another, or each other twice."""
    count = chance.choice((1, 2, 8, 20, 70))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    for number in range(count):
        callee = f"F{(number + 1) % (count + chance.randint(0, 1))}"
        body = [helper.make_node(callee, ["v"], ["t"], domain="f"), helper.make_node(callee, ["t"], ["w"], domain="f")]
        model.functions.append(
            helper.make_function("f", f"F{number}", ["v"], ["w"], body[chance.randint(0, 1) :], imports)
        )
    model.opset_import.add(domain="f", version=1)
    node = _node(chance, model)
    if node is not None:
        node.op_type, node.domain = "F0", "f"


def nested(chance: Chance, model: ModelProto) -> None:
    """The nodes of the graph in branches within branches, as deep as the protobuf of Python takes it."""
    inner = GraphProto(name="g")
    inner.node.extend(model.graph.node)
    inner.output.extend(model.graph.output)
    for _ in range(chance.choice((1, 3, 20, 40))):
        outer = GraphProto(name="g")
        node = outer.node.add(op_type="If", input=["flag"], output=[output.name for output in model.graph.output])
        for branch in ("then_branch", "else_branch")[: chance.randint(1, 2)]:
            node.attribute.add(name=branch, type=AttributeProto.GRAPH).g.CopyFrom(inner)
            if inner.ByteSize() > 1 << 16:
                break
        outer.output.extend(model.graph.output)
        inner = outer
    del model.graph.node[:]
    model.graph.node.extend(inner.node)
    model.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))


def more(chance: Chance, model: ModelProto) -> None:
    """Parts that few models have."""
    match chance.randint(0, 4):
        case 0:
            model.training_info.add().algorithm.CopyFrom(model.graph)
        case 1:
            model.graph.sparse_initializer.add().values.dims[:] = [chance.choice(NUMBERS)]
        case 2:
            model.metadata_props.add(key="k" * 1000, value="\u0000")
        case 3 if model.graph.node:
            model.graph.node.extend([chance.choice(model.graph.node)] * chance.choice((1, 200)))
        case _:
            del model.graph.output[:]


CHANGES: tuple[Callable[[Chance, ModelProto], None], ...] = (
    dims, dtype, kind, name, attribute, opset, edge, operator, outside, stored_bytes, functions, nested, more,
)  # fmt: skip


def _tensor(value: Any) -> bool:
    return bool(value.type.HasField("tensor_type"))


def _nodes(model: ModelProto) -> list[NodeProto]:
    return [*model.graph.node, *(node for function in model.functions for node in function.node)]


def _node(chance: Chance, model: ModelProto) -> NodeProto | None:
    nodes = _nodes(model)
    return chance.choice(nodes) if nodes else None


def _operators() -> list[str]:
    return sorted(set(_named()))


def _named() -> Iterator[str]:
    return (schema.name for schema in onnx.defs.get_all_schemas())

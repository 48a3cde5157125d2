"""Models that mean harm or ask for the impossible, as small as they come."""

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto
from onnx.helper import make_function, make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

OURS = [make_opsetid("", 17), make_opsetid("my", 1)]


def value(name, shape=(2, 3), dtype=TensorProto.FLOAT):
    return make_tensor_value_info(name, dtype, shape)


def model(nodes, *functions: FunctionProto, inputs=None, outputs=None, opset=17, **graph) -> ModelProto:
    body = make_graph(nodes, "g", inputs or [value("x")], outputs or [value("y")], **graph)
    made = make_model(body, opset_imports=[make_opsetid("", opset), make_opsetid("my", 1)], ir_version=10)
    made.functions.extend(functions)
    return made


def call(name: str, given: str = "x", made: str = "y", domain: str = "my") -> NodeProto:
    return make_node(name, [given], [made], domain=domain)


def function(name: str, *body: NodeProto, domain: str = "my") -> FunctionProto:
    return make_function(domain, name, ["v"], ["w"], body, [*OURS, make_opsetid("other", 1)])


def calls_itself() -> ModelProto:
    return model([call("F")], function("F", call("F", "v", "w")))


def calls_itself_in_a_branch() -> ModelProto:
    branch = make_graph([call("F", "v", "b")], "branch", [], [value("b")])
    return model([call("F")], function("F", make_node("If", ["v"], ["w"], then_branch=branch, else_branch=branch)))


def calls_in_a_ring(length: int) -> ModelProto:
    ring = [function(f"F{n}", call(f"F{(n + 1) % length}", "v", "w")) for n in range(length)]
    return model([call("F0")], *ring)


def calls_a_namesake() -> ModelProto:
    """Legal ONNX: two functions of one name in two domains. A parser that goes by the name alone never returns."""
    first = function("F", call("F", "v", "w", domain="other"))
    return model([call("F")], first, function("F", make_node("Neg", ["v"], ["w"]), domain="other"))


def doubles(levels: int) -> ModelProto:
    """Each function calls the next twice: 2 ** levels nodes from `levels` functions."""
    steps = [function(f"F{n}", call(f"F{n + 1}", "v", "t"), call(f"F{n + 1}", "t", "w")) for n in range(levels)]
    return model([call("F0")], *steps, function(f"F{levels}", make_node("Neg", ["v"], ["w"])))


def deep(levels: int) -> ModelProto:
    steps = [function(f"F{n}", call(f"F{n + 1}", "v", "w")) for n in range(levels)]
    return model([call("F0")], *steps, function(f"F{levels}", make_node("Neg", ["v"], ["w"])))


def outside(location: str = "w.bin", dims=(4,), name: str = "w", **entries: object) -> TensorProto:
    """A float32 tensor that is kept in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(entry))
    return tensor

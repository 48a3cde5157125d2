"""A graph made ready to be followed many times: its nodes in order, with their branches and the bodies they call."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from app.intake.kinds import Scope, hold_constant, stored_in
from app.intake.walk import plain_domain

Opset = Mapping[str, int]


@dataclass(eq=False)
class Step:
    node: NodeProto
    branches: dict[str, "Body"] = field(default_factory=dict)  # by attribute, of an If
    called: "Body | None" = None  # of a call, made when it is first followed
    function: FunctionProto | None = None

    @property
    def name(self) -> str:
        return str(self.node.name or (self.node.output[0] if self.node.output else ""))


@dataclass(eq=False)
class Body:
    steps: list[Step]
    stored: Scope
    outputs: list[str]
    opset: Opset

    def __post_init__(self) -> None:
        """Take constants out of the steps: what is the same at every shape is known from the start."""
        constants = [step for step in self.steps if step.node.op_type == "Constant" and step.function is None]
        for step in constants:
            hold_constant(step.node, self.stored)
        if constants:
            taken = set(constants)
            self.steps = [step for step in self.steps if step not in taken]

    @property
    def constants(self) -> Container[str]:
        return self.stored.kinds


class Bodies:
    """Makes bodies of a model's graphs and functions. Recurses as deep as these nest, which was checked before."""

    def __init__(self, model: ModelProto) -> None:
        self._functions = {(plain_domain(f.domain), f.name): f for f in model.functions}
        self.main = self._of_graph(model.graph, opset_of(model))

    def called_by(self, step: Step) -> Body:
        """Return the body that a step calls, with the caller's attributes in the place of references to them."""
        if step.called is None:
            function = step.function
            assert function is not None
            given = {a.name: a for a in (*function.attribute_proto, *step.node.attribute)}
            nodes = [_filled(node, given) for node in function.node]
            step.called = Body(
                self._steps(nodes, opset_of(function)), Scope(), list(function.output), opset_of(function)
            )
        return step.called

    def _of_graph(self, graph: GraphProto, opset: Opset) -> Body:
        outputs = [output.name for output in graph.output]
        return Body(self._steps(graph.node, opset), stored_in(graph), outputs, opset)

    def _steps(self, nodes: Iterable[NodeProto], opset: Opset) -> list[Step]:
        return [self._step(node, opset) for node in nodes]

    def _step(self, node: NodeProto, opset: Opset) -> Step:
        function = self._functions.get((plain_domain(node.domain), node.op_type))
        branches = {}
        if node.op_type == "If" and function is None:
            graphs = {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}
            branches = {name: self._of_graph(graph, opset) for name, graph in graphs.items()}
        return Step(node, branches, None, function)


def opset_of(declares: ModelProto | FunctionProto) -> Opset:
    return {plain_domain(entry.domain): entry.version for entry in declares.opset_import}


def _filled(node: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    filled = NodeProto()
    filled.CopyFrom(node)
    del filled.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            filled.attribute.append(attribute)
        elif attribute.ref_attr_name in given:
            filled.attribute.add().CopyFrom(given[attribute.ref_attr_name])
            filled.attribute[-1].name = attribute.name
    return filled

"""Everything that a model holds, one by one. Nothing here recurses: the model is a stranger's."""

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from app.intake.unfit import Unfit

MOST_NODES = 1_000_000
MOST_TENSORS = 1_000_000


def plain_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def subgraphs(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    """Graphs held by attributes, whatever type these claim to have."""
    for attribute in attributes:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes_in(bodies: Iterable[Iterable[NodeProto]]) -> Iterator[NodeProto]:
    """Every node of these lists and of their subgraphs. Calls of functions are not followed."""
    waiting = list(bodies)
    while waiting:
        for node in waiting.pop():
            yield node
            waiting.extend(graph.node for graph in subgraphs(node.attribute))


class Contents:
    """The nodes, graphs and stored tensors of a model: of subgraphs, functions and training too, each once.

    Raises `Unfit` (model_too_complex) when there are more than `MOST_NODES` or `MOST_TENSORS` of them.
    """

    def __init__(self, model: ModelProto) -> None:
        self.graphs = [model.graph, *_training(model), *_defaults(model)]
        self.nodes: list[NodeProto] = []
        self._defaults = [a for function in model.functions for a in function.attribute_proto]
        bodies = [*(graph.node for graph in self.graphs), *(function.node for function in model.functions)]
        for node in nodes_in(bodies):
            self.nodes.append(node)
            self.graphs.extend(subgraphs(node.attribute))
            if len(self.nodes) > MOST_NODES:
                raise Unfit("model_too_complex", f"The model has more than {MOST_NODES} nodes.")
        self.tensors = self._bounded(self._all_tensors())

    def _all_tensors(self) -> Iterator[tuple[str, TensorProto]]:
        for graph in self.graphs:
            for tensor in graph.initializer:
                yield tensor.name, tensor
            for sparse in graph.sparse_initializer:
                yield from _parts(sparse.values.name, sparse)
        for node in self.nodes:
            yield from _held(node.name or (node.output[0] if node.output else node.op_type), node.attribute)
        yield from _held("a function's default", self._defaults)

    @staticmethod
    def _bounded(tensors: Iterator[tuple[str, TensorProto]]) -> list[tuple[str, TensorProto]]:
        """Pair every stored tensor with the name of who holds it."""
        found = []
        for pair in tensors:
            found.append(pair)
            if len(found) > MOST_TENSORS:
                raise Unfit("model_too_complex", f"The model stores more than {MOST_TENSORS} tensors.")
        return found


def _training(model: ModelProto) -> Iterator[GraphProto]:
    for step in model.training_info:
        yield step.initialization
        yield step.algorithm


def _defaults(model: ModelProto) -> Iterator[GraphProto]:
    for function in model.functions:
        yield from subgraphs(function.attribute_proto)


def _held(holder: str, attributes: Iterable[AttributeProto]) -> Iterator[tuple[str, TensorProto]]:
    for attribute in attributes:
        for tensor in (*((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors):
            yield holder, tensor
        single = (attribute.sparse_tensor,) if attribute.HasField("sparse_tensor") else ()
        for sparse in (*single, *attribute.sparse_tensors):
            yield from _parts(holder, sparse)


def _parts(holder: str, sparse: SparseTensorProto) -> Iterator[tuple[str, TensorProto]]:
    yield holder, sparse.values
    yield holder, sparse.indices

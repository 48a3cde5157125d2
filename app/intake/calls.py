"""What the functions of a model expand to, counted before any native code sees them."""

from collections import Counter
from collections.abc import Iterator

from onnx import FunctionProto, ModelProto

from app.intake.unfit import Unfit
from app.intake.walk import nodes_in, plain_domain

MOST_EXPANDED = 1_000_000  # nodes, once every call is replaced by its body
FREE = 10_000  # expanded nodes that no model has to account for
GROWTH = 16  # expanded nodes per written one beyond that: exporters stay below, doubling chains do not
MOST_FUNCTIONS = 10_000
DEEPEST = 64  # calls within calls; native parsers recurse here


def check_calls(model: ModelProto) -> None:
    """Refuse models whose functions call themselves, nest too deep, or expand to too much. Raises `Unfit`.

    A builder's parser may look a function up by its name alone, so a call counts for every function of that name.
    """
    if not model.functions:
        return
    if len(model.functions) > MOST_FUNCTIONS:
        raise Unfit("model_too_complex", f"The model has more than {MOST_FUNCTIONS} functions.")
    bodies = _Bodies(model)
    size, depth = bodies.expanded()
    written = sum(bodies.written)
    if size > MOST_EXPANDED or size > FREE + GROWTH * written:
        raise Unfit("model_too_complex", f"{written} nodes expand to {_about(size)} once functions are inlined.")
    if depth > DEEPEST:
        raise Unfit("model_too_complex", f"Functions call one another {depth} levels deep; {DEEPEST} are allowed.")


class _Bodies:
    """Body 0 is the graph's, the others are the functions': their nodes, and how often each calls which."""

    def __init__(self, model: ModelProto) -> None:
        self.functions: list[FunctionProto] = list(model.functions)
        self._by_name: dict[str, list[int]] = {}
        for number, function in enumerate(self.functions, 1):
            self._by_name.setdefault(function.name, []).append(number)
        lists = [model.graph.node, *(function.node for function in self.functions)]
        called = [Counter((plain_domain(n.domain), n.op_type) for n in nodes_in([nodes])) for nodes in lists]
        self.written = [sum(counts.values()) for counts in called]
        self.calls = [list(self._calls(counts)) for counts in called]

    def _calls(self, counts: "Counter[tuple[str, str]]") -> Iterator[tuple[int, int]]:
        for (domain, name), times in counts.items():
            for number in self._by_name.get(name, ()):
                if domain or not plain_domain(self.functions[number - 1].domain):
                    yield number, times

    def expanded(self) -> tuple[int, int]:
        """Return the nodes of the whole model with every call inlined, and how deep calls nest."""
        sizes: dict[int, tuple[int, int]] = {}
        for body in self._callees_first():
            size, depth = self.written[body], 0
            for callee, times in self.calls[body]:
                size += times * sizes[callee][0]
                depth = max(depth, 1 + sizes[callee][1])
            sizes[body] = size, depth
        return sizes[0]

    def _callees_first(self) -> Iterator[int]:
        entered: set[int] = set()
        left: set[int] = set()
        path = [*range(len(self.calls))]
        while path:
            body = path[-1]
            if body in left:
                path.pop()
            elif body not in entered:
                entered.add(body)
                for callee, _ in self.calls[body]:
                    if callee in entered and callee not in left:
                        raise Unfit("model_too_complex", f"Function {self._name(callee)} calls itself.")
                    path.append(callee)
            else:
                left.add(body)
                path.pop()
                yield body

    def _name(self, body: int) -> str:
        return str(self.functions[body - 1].name)[:80]


def _about(count: int) -> str:
    return f"{count}" if count < 10**9 else f"10^{len(str(count)) - 1}"

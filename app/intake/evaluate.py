"""Follow extents and small values through a graph at one given set of input shapes, up to the first layer that breaks.

Extents come from ONNX's inference, node by node; the values of shape arithmetic are computed, so that what a Reshape or
a Slice will do is known. What cannot be known is left open and breaks nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import ModelProto

from app.intake.infer import Broken, Computer, made_by, measured
from app.intake.kinds import Kind, Scope, given_scope
from app.intake.steps import Bodies, Body, Step

__all__ = ["Broken", "Evaluator"]

Extents = Mapping[str, Sequence[int]]


class Evaluator:
    """Evaluates one model any number of times. `tick` is called before each node and may raise to end it."""

    def __init__(self, model: ModelProto, tick: Callable[[], None]) -> None:
        self._graph, self._tick = model.graph, tick
        self._bodies = Bodies(model)
        self._computer = Computer()
        self._known: dict[Any, list[tuple[str, Kind]]] = {}  # what a step made of the same inputs before
        self._given: frozenset[str] = frozenset()  # inputs whose values decide shapes
        self.largest = (0, "", 0)  # bytes, name and elements of the largest tensor that the last evaluation met

    def at(self, shapes: Extents, values: Extents) -> None:
        """Follow the graph with these extents of its inputs, and these values of inputs that decide shapes.

        Raises `Broken` at the first layer that cannot be.
        """
        self.largest = (0, "", 0)
        self._given = frozenset(values)
        main = self._bodies.main
        self._follow(main, given_scope(self._graph, main.stored, shapes, values))

    def _follow(self, body: Body, scope: Scope) -> None:
        for step in body.steps:
            self._tick()
            if step.function is not None:
                self._call(step, scope)
            elif step.branches:
                self._branch(step, scope)
            else:
                self._operate(step, scope, body)

    def _operate(self, step: Step, scope: Scope, body: Body) -> None:
        names = step.node.input
        kinds = [scope.kind(name) if name else None for name in names]
        values = [scope.value(name) if name else None for name in names]
        key = (step, tuple(kinds), tuple(None if value is None else value.tobytes() for value in values))
        made = self._known.get(key)
        if made is None:
            try:
                made = self._known[key] = made_by(step, kinds, values, body.opset, body.constants)
            except Broken as broken:
                # The builder does not add up the lengths of a Split that come with a run.
                broken.unsure = broken.unsure or (step.node.op_type == "Split" and names[-1] in self._given)
                raise
        for name, kind in made:
            scope.kinds[name] = kind
            if kind.bytes > self.largest[0]:
                self.largest = kind.bytes, name, kind.count or 0
        if step.node.op_type in ("Shape", "Size"):
            if kinds and kinds[0] and (value := measured(step.node, kinds[0])) is not None:
                scope.values[step.node.output[0]] = value
        elif names and all(value is not None or not name for value, name in zip(values, names, strict=True)):
            self._computer.compute(step, values, scope, body.opset)

    def _branch(self, step: Step, scope: Scope) -> None:
        """Follow both branches, unless the condition is known: the builder builds both."""
        condition = scope.value(step.node.input[0])
        chosen = list(step.branches)
        if condition is not None and condition.size == 1:
            chosen = ["then_branch" if condition.reshape(-1)[0] else "else_branch"]
        results = []
        for name in chosen:
            if body := step.branches.get(name):
                inner = scope.inside(body.stored)
                try:
                    self._follow(body, inner)
                except Broken as broken:
                    broken.unsure = broken.unsure or len(chosen) > 1
                    raise
                results.append([inner.kind(output) for output in body.outputs])
        for at, output in enumerate(step.node.output):
            kinds = {made[at] for made in results if at < len(made)}
            if len(kinds) == 1 and (kind := kinds.pop()):
                scope.kinds[output] = kind

    def _call(self, step: Step, scope: Scope) -> None:
        body = self._bodies.called_by(step)
        inner = Scope(dict(body.stored.kinds), dict(body.stored.values))
        assert step.function is not None
        for formal, actual in zip(step.function.input, step.node.input, strict=False):
            inner.adopt(formal, scope, actual)
        self._follow(body, inner)
        for formal, actual in zip(body.outputs, step.node.output, strict=False):
            scope.adopt(actual, inner, formal)

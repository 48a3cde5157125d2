"""What is built during a soak: small real topologies, and chains that take from an instant to some seconds."""

import random
import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from tests.conftest import light

REAL = ("zfnet512", "squeezenet", "inception_v1")
LENGTHS = (2, 2, 300, 1200)  # Relus in a row
LONG = 4000
KNOWN = 12  # wishes that anybody may have again; older ones are forgotten
NEW = 0.3  # of all wishes


@dataclass(frozen=True)
class Wish:
    """A model and the spec it is wanted with: each is one engine key."""

    content: bytes
    spec: dict[str, Any]


class Wishes:
    """What anybody wants next: mostly what others want too, so that there is something to share."""

    def __init__(self, seed: int) -> None:
        self._chance, self._lock = random.Random(seed), threading.Lock()
        self._known = [Wish(light(name).read_bytes(), {}) for name in REAL]

    def next(self) -> Wish:
        with self._lock:
            if self._chance.random() < NEW:
                content = chain(self._chance.choice(LENGTHS), f"g{self._chance.randrange(10**9)}")
                self._known += [Wish(content, {"optimization_level": level}) for level in (1, 3)]
                del self._known[:-KNOWN]
            return self._chance.choice(self._known)

    def long(self) -> Wish:
        """Return what nobody else wants and nobody waits for: it takes half a minute, most of it in silence."""
        with self._lock:
            return Wish(chain(LONG, f"g{self._chance.randrange(10**9)}"), {})


def chain(length: int, name: str) -> bytes:
    names = [f"t{i}" for i in range(length + 1)]
    nodes = [make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    given, made = (make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in (names[0], names[-1]))
    graph = make_graph(nodes, name, [given], [made])
    model = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content

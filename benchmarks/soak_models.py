"""What is built during a soak: small real topologies, and chains that take from an instant to some seconds."""

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from tests.conftest import light

REAL = ("zfnet512", "squeezenet", "inception_v1")
CHAINS = ((2, 6), (300, 3), (1200, 2))  # Relus in a row, and how many models of that length


@dataclass(frozen=True)
class Wish:
    """A model and the spec it is wanted with: each is one engine key."""

    content: bytes
    spec: dict[str, Any]


def models(seed: int) -> list[Wish]:
    found = [Wish(light(name).read_bytes(), {}) for name in REAL]
    chance = random.Random(seed)
    for length, number in CHAINS:
        for _ in range(number):
            content = chain(length, f"g{chance.randrange(10**9)}")
            found += [Wish(content, {"optimization_level": level}) for level in (1, 3)]
    return found


def chain(length: int, name: str) -> bytes:
    names = [f"t{i}" for i in range(length + 1)]
    nodes = [make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    given, made = (make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in (names[0], names[-1]))
    graph = make_graph(nodes, name, [given], [made])
    model = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content

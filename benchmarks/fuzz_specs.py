"""Specs for a fuzz: mostly legal, so that builds begin, else near to it."""

import copy
import random
from typing import Any

Json = dict[str, Any]
ODD = (0, -1, 1, 2, 3, 7, 4096, 2**31 - 1, 2**31, 2**63 - 1, 10**30)


def spec_of(chance: random.Random, template: list[Json]) -> Json:
    """Return a spec with the profiles of `template`, perhaps changed."""
    spec: Json = {"profiles": copy.deepcopy(template), "optimization_level": chance.choice((0, 0, 1, 3))}
    if chance.random() < 0.7:
        return spec
    match chance.randint(0, 4):
        case 0:
            spec["optimization_level"] = chance.choice((-1, 6, 99, 5))
        case 1:
            spec["workspace_bytes"] = chance.choice((*ODD, 1 << 20, 1 << 30))
        case 2:
            spec["profiles"] *= chance.choice((0, 2, 3))
        case 3:
            spec["profiles"].append({chance.choice(("x", "", "?" * 300)): {"min": [1], "opt": [1], "max": [2]}})
        case _:
            for profile in spec["profiles"]:
                for shape in profile.values():
                    _bent(chance, shape)
    return spec


def _bent(chance: random.Random, shape: Json) -> None:
    extents = shape[chance.choice(("min", "opt", "max"))]
    if extents and chance.random() < 0.8:
        extents[chance.randrange(len(extents))] = chance.choice(ODD)
    else:
        extents.append(1)

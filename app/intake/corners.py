"""Profiles as the shape doctor sees them: corners, and axes that move together. Plain values: this runs in a child."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any

from onnx import GraphProto

Profile = dict[str, dict[str, Any]]  # input → {"min": […], "opt": […], "max": […], "values": false}
CORNERS = ("min", "opt", "max")
Shapes = dict[str, list[int]]


@dataclass(frozen=True)
class Axis:
    """Places in inputs that have one extent: those that share a name, or a single one."""

    places: tuple[tuple[str, int], ...]

    @property
    def input(self) -> str:
        return self.places[0][0]

    @property
    def index(self) -> int:
        return self.places[0][1]

    def of(self, shapes: Mapping[str, list[int]]) -> int:
        return shapes[self.input][self.index]

    def set(self, shapes: Shapes, extent: int) -> Shapes:
        """Return `shapes` with this extent in every place of the axis."""
        changed = {name: list(extents) for name, extents in shapes.items()}
        for name, index in self.places:
            changed[name][index] = extent
        return changed

    def __str__(self) -> str:
        return f"{self.input} axis {self.index}"


def axes_of(graph: GraphProto, profile: Profile) -> list[Axis]:
    """Return the axes that the profile leaves open to the model, the batch last: it seldom breaks anything."""
    named: dict[str, list[tuple[str, int]]] = {}
    for given in graph.input:
        if given.name in profile and not profile[given.name].get("values"):
            for index, dim in enumerate(given.type.tensor_type.shape.dim):
                if not dim.HasField("dim_value") or dim.dim_value < 0:
                    name = dim.dim_param or f"\0{given.name}\0{index}"
                    named.setdefault(name, []).append((given.name, index))
    axes = [Axis(tuple(places)) for places in named.values()]
    return sorted(axes, key=lambda axis: axis.index == 0)


def corner(profile: Profile, which: str) -> Shapes:
    return {name: list(asked[which]) for name, asked in profile.items() if not asked.get("values")}


def corner_values(profile: Profile, which: str) -> Shapes:
    return {name: list(asked[which]) for name, asked in profile.items() if asked.get("values")}


def with_extent(profile: Profile, which: str, axis: Axis, extent: int) -> Profile:
    """Return the profile with that extent at that corner, and the other corners moved along where order demands it."""
    changed = {name: {**asked} for name, asked in profile.items()}
    for name, index in axis.places:
        low, opt, high = (profile[name][c][index] for c in CORNERS)
        if which == "opt":
            low, opt, high = min(low, extent), extent, max(high, extent)
        elif which == "min":
            low, opt, high = extent, max(opt, extent), max(high, extent)
        else:
            low, opt, high = min(low, extent), min(opt, extent), extent
        for c, value in zip(CORNERS, (low, opt, high), strict=True):
            extents = list(changed[name][c])
            extents[index] = value
            changed[name][c] = extents
    return changed


def flags(profile: Profile) -> str:
    """Return a profile as trtexec's flags, quoted for a shell."""
    return " ".join(quote(f"--{which}Shapes=" + ",".join(_words(profile, which))) for which in CORNERS)


def _words(profile: Profile, which: str) -> Iterator[str]:
    for name, asked in profile.items():
        plain = name.replace("_", "").replace(".", "").replace("/", "").replace("-", "").isalnum()
        yield f"{name if plain else repr(name)}:{'x'.join(map(str, asked[which])) or 'scalar'}"

"""Optimization profiles as trtexec writes them: `--minShapes=x:1x3x64x64,y:1x8 --optShapes=… --maxShapes=…`.

trtexec's rules hold: all three of min, opt and max, or opt alone, which then is all three; `--shapes` alone likewise.
A name ends at the last colon, in single quotes it may hold anything, a `*` in it stands for any letters, `x:scalar` or
`x:` has no axes. Repeating the options gives further profiles, the first of each for profile 0, and so on.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trtforge.contract.models import Tensor
from trtforge.contract.spec import OptimizationProfile, ShapeRange

_profile = TypeAdapter(OptimizationProfile)

_PART = re.compile(r"(?:'[^']*'|[^,'])+")  # up to a comma outside quotes
_NAMED = re.compile(r"((?:'[^']*'|[^'])+):([^:']*)")
_PLAIN_NAME = re.compile(r"[\w./-]+")

Shapes = dict[str, tuple[int, ...]]


def read_shapes(words: str) -> Shapes:
    """Read one `name:1x3x64x64,…`. Raises `ValueError` that quotes the part at fault."""
    shapes: Shapes = {}
    for part in _PART.findall(words):
        found = _NAMED.fullmatch(part)
        name = found[1].replace("'", "").strip() if found else ""
        if not found or not name:
            raise ValueError(f"{part!r} is not name:1x3x64x64")
        if name in shapes:
            raise ValueError(f"{name!r} is named twice")
        shapes[name] = _extents(part, found[2].strip())
    if not shapes:
        raise ValueError("no shapes are given; write name:1x3x64x64")
    return shapes


def _extents(part: str, words: str) -> tuple[int, ...]:
    if words in ("", "scalar"):
        return ()
    try:
        return tuple(int(extent) for extent in words.split("x"))
    except ValueError:
        raise ValueError(f"{part!r}: {words!r} is not whole numbers joined by x") from None


def read_profiles(
    low: Sequence[str], best: Sequence[str], high: Sequence[str], fixed: Sequence[str]
) -> tuple[OptimizationProfile, ...]:
    """Return the profiles that the four options, each given any number of times, describe."""
    if fixed and (low or best or high):
        raise ValueError("give either --shapes, or --minShapes, --optShapes and --maxShapes")
    if (low or high) and not len(low) == len(best) == len(high):
        raise ValueError(
            "give only --optShapes, or as many each of --minShapes, --optShapes and --maxShapes "
            f"(there are {len(low)}, {len(best)} and {len(high)})"
        )
    best = fixed or best
    corners = zip(low or best, best, high or best, strict=True)
    return tuple(_join(*(read_shapes(words) for words in corner)) for corner in corners)


def _join(low: Shapes, best: Shapes, high: Shapes) -> OptimizationProfile:
    if not low.keys() == best.keys() == high.keys():
        odd = (low.keys() | best.keys() | high.keys()) - (low.keys() & best.keys() & high.keys())
        raise ValueError(f"every input needs min, opt and max; not all have {', '.join(sorted(odd))}")
    return {name: ShapeRange(min=low[name], opt=best[name], max=high[name]) for name in best}


def read_json(words: str) -> OptimizationProfile:
    """Read one profile in the wire's own form: `{"x": {"min": […], "opt": […], "max": […]}}`."""
    try:
        return _profile.validate_json(words)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ValueError(f"{where + ': ' if where else ''}{first['msg']}") from None


def fit(profile: OptimizationProfile, inputs: Sequence[Tensor]) -> OptimizationProfile:
    """Spell out names with a `*` and mark shape values, as the model's inputs say; unknown names stay."""
    values = {tensor.name: tensor.shape_values for tensor in inputs}
    fitted: OptimizationProfile = {}
    for name, shapes in profile.items():
        names = (
            [n for n in values if fnmatchcase(n, _only_stars(name))] if "*" in name and name not in values else [name]
        )
        for one in names or [name]:
            fitted[one] = shapes.model_copy(update={"values": shapes.values or values.get(one, False)})
    return fitted


def _only_stars(name: str) -> str:
    return name.replace("[", "[[]").replace("?", "[?]")


def as_trtexec(profiles: Sequence[Mapping[str, Any]]) -> str:
    """Return profiles as options ready to paste into a shell; an extent that is still open is written as `?`."""
    options = [f"--{corner}Shapes={_written(one, corner)}" for one in profiles for corner in ("min", "opt", "max")]
    return " ".join(map(shlex.quote, options))


def _written(profile: Mapping[str, Any], corner: str) -> str:
    return ",".join(f"{_name(name)}:{_joined(shapes[corner])}" for name, shapes in profile.items())


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"'{name}'"


def _joined(extents: Sequence[int | None]) -> str:
    return "x".join("?" if extent is None else str(extent) for extent in extents) or "scalar"


def as_json(profiles: Sequence[Mapping[str, Any]]) -> str:
    """Return profiles as `--profile` options ready to paste into a shell."""
    return " ".join(f"--profile {shlex.quote(json.dumps(profile))}" for profile in profiles)

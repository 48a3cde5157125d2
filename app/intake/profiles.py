"""Optimization profiles against the inputs of a model: every rule the builder would break on later, checked at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from app.errors import trouble
from trtforge.contract.models import Tensor
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import OptimizationProfile, ShapeRange

LARGEST_RANK = 8  # TensorRT's Dims::MAX_DIMS
LARGEST_EXTENT = 2**31 - 1  # TensorRT's Dims hold more, its tensors do not
LARGEST_VOLUME = 2**31 - 1  # elements: "the volume of a tensor must be less than 2^31", NVIDIA's limits of the builder
NAMES_SHOWN = 20  # a model may have thousands of inputs; a message stays readable


@dataclass(frozen=True)
class _Place:
    profile: int
    input: str

    def trouble(self, message: str, axis: int | None = None, code: str = "profile_invalid") -> Trouble:
        where: dict[str, Any] = {"profile": self.profile, "input": self.input}
        spot = f"Profile {self.profile}: {self.input}"
        if axis is not None:
            where["axis"], spot = axis, f"{spot} axis {axis}"
        return trouble(code, f"{spot} {message}", **where)


def needs_profile(tensor: Tensor) -> bool:
    """Tell whether every profile must have an entry for this input: for an open axis, or for shape values."""
    return is_open(tensor) or tensor.shape_values


def value_count(tensor: Tensor) -> int | None:
    """Return how many values a shape-value input has; None when it could have any number."""
    return None if is_open(tensor) else prod(extent for extent in tensor.shape or () if extent is not None)


def is_open(tensor: Tensor) -> bool:
    """Tell whether a profile must say an extent of this input. Of unknown rank is open too."""
    return tensor.shape is None or None in tensor.shape


def check_profiles(profiles: Sequence[OptimizationProfile], inputs: Sequence[Tensor]) -> list[Trouble]:
    """Return every rule that `profiles` break for `inputs`, each with its profile, input and axis; empty when all hold.

    Rules: 1 ≤ min ≤ opt ≤ max on every axis, the model's own extent on a fixed axis, the model's rank; open axes that
    share a name have one range in a profile; a tensor has fewer than 2^31 elements. The builder itself takes the
    overlap of unequal ranges without a word, so the engine would refuse shapes that the profile promises. An input
    whose values decide shapes needs those values instead: as many as it holds, min ≤ opt ≤ max, of any sign.
    """
    if not profiles:
        return [_unsaid(t) for t in inputs if needs_profile(t)]
    return [found for number, profile in enumerate(profiles) for found in _check_profile(number, profile, inputs)]


def _unsaid(tensor: Tensor) -> Trouble:
    if tensor.shape_values:
        message = f"The values of input {tensor.name} decide shapes, and there is no profile."
        return trouble("shape_values_required", message, input=tensor.name)
    message = f"Input {tensor.name} has {_open_axes(tensor)} and there is no profile."
    axes = [axis for axis, extent in enumerate(tensor.shape or ()) if extent is None]
    return trouble("profile_required", message, input=tensor.name, axes=axes)


def _open_axes(tensor: Tensor) -> str:
    if tensor.shape is None:
        return "unknown rank"
    names = tensor.axes or (None,) * len(tensor.shape)
    axes = [f"{i} ({names[i]})" if names[i] else str(i) for i, extent in enumerate(tensor.shape) if extent is None]
    return f"open {'axis' if len(axes) == 1 else 'axes'} {', '.join(axes)}"


def _check_profile(number: int, profile: OptimizationProfile, inputs: Sequence[Tensor]) -> Iterator[Trouble]:
    known = {t.name: t for t in inputs}
    for name in [n for n in profile if n not in known]:
        yield _Place(number, name).trouble(f"is not an input of this model; its inputs are {_listed(list(known))}.")
    shaped: list[tuple[Tensor, ShapeRange]] = []
    for tensor in inputs:
        place = _Place(number, tensor.name)
        if tensor.shape_values or (tensor.name in profile and profile[tensor.name].values):
            yield from _check_values(place, tensor, profile.get(tensor.name))
        elif tensor.name not in profile:
            if is_open(tensor):
                message = f"is missing and has {_open_axes(tensor)}."
                yield place.trouble(message, code="profile_required")
        elif wrong := _wrong_rank(tensor, profile[tensor.name]):
            yield place.trouble(wrong)
        else:
            shaped.append((tensor, profile[tensor.name]))
            yield from _check_input(place, tensor, profile[tensor.name])
    yield from _check_shared(number, shaped)


def _check_values(place: _Place, tensor: Tensor, asked: ShapeRange | None) -> Iterator[Trouble]:
    count = value_count(tensor)
    if asked is None or not asked.values:
        missing = "is missing" if asked is None else "has shapes"
        message = f"{missing}; its values decide shapes, so a profile gives those, with `values` true."
        yield place.trouble(message, code="shape_values_required")
    elif tensor.dtype not in ("int32", "int64", "bool") or len(tensor.shape or ()) > 1:
        yield place.trouble("has `values`; only integers of rank 0 or 1 can decide shapes.")
    elif count is None:
        yield place.trouble("decides shapes and has an open axis; the builder needs a fixed number of values.")
    elif {len(asked.min), len(asked.opt), len(asked.max)} != {count}:
        yield place.trouble(f"holds {count} values; min, opt and max must have as many.")
    else:
        for at, (low, opt, high) in enumerate(zip(asked.min, asked.opt, asked.max, strict=True)):
            if not low <= opt <= high or max(abs(low), abs(high)) > LARGEST_EXTENT:
                rule = "min ≤ opt ≤ max must hold, none beyond 2^31 - 1"
                yield place.trouble(f"value {at} has min {low}, opt {opt}, max {high}; {rule}.", at)


def _wrong_rank(tensor: Tensor, asked: ShapeRange) -> str | None:
    ranks = len(asked.min), len(asked.opt), len(asked.max)
    if tensor.shape is not None and set(ranks) != {len(tensor.shape)}:
        return f"has rank {len(tensor.shape)}; min, opt and max have {ranks[0]}, {ranks[1]} and {ranks[2]} extents."
    if max(ranks) > LARGEST_RANK:
        return f"has {max(ranks)} extents; TensorRT takes at most {LARGEST_RANK}."
    if len(set(ranks)) > 1:
        return f"needs one rank; min, opt and max have {ranks[0]}, {ranks[1]} and {ranks[2]} extents."
    return None


def _check_input(place: _Place, tensor: Tensor, asked: ShapeRange) -> Iterator[Trouble]:
    shape = tensor.shape if tensor.shape is not None else (None,) * len(asked.min)
    for axis, triple in enumerate(zip(asked.min, asked.opt, asked.max, strict=True)):
        for rule in _broken(*triple, shape[axis]):
            yield place.trouble(f"has min {triple[0]}, opt {triple[1]}, max {triple[2]}; {rule}.", axis)
    if max(asked.max, default=1) <= LARGEST_EXTENT and prod(asked.max) > LARGEST_VOLUME:
        volume = " × ".join(map(str, asked.max))
        yield place.trouble(f"has {volume} elements at max; a tensor of TensorRT holds fewer than 2^31.")


def _broken(low: int, opt: int, high: int, fixed: int | None) -> Iterator[str]:
    """Name each rule that one axis breaks."""
    if fixed is not None:
        if {low, opt, high} != {fixed}:
            yield f"the model fixes this axis at {fixed}"
        return
    if low < 1:
        yield "min must be at least 1"
    if low > opt:
        yield "min must not exceed opt"
    if opt > high:
        yield "opt must not exceed max"
    if high > LARGEST_EXTENT:
        yield "TensorRT takes extents up to 2^31 - 1"


def _check_shared(number: int, shaped: Sequence[tuple[Tensor, ShapeRange]]) -> Iterator[Trouble]:
    """Axes that share a name are one axis to the builder, across inputs and within one."""
    first: dict[str, tuple[str, int, tuple[int, int, int]]] = {}
    for tensor, asked in shaped:
        for axis, name in enumerate(tensor.axes or ()):
            if not name:
                continue
            triple = asked.min[axis], asked.opt[axis], asked.max[axis]
            other, at, theirs = first.setdefault(name, (tensor.name, axis, triple))
            if triple != theirs:
                message = (
                    f"has min {triple[0]}, opt {triple[1]}, max {triple[2]}; it is the axis named {name!r}, "
                    f"and {other} axis {at} of that name has min {theirs[0]}, opt {theirs[1]}, max {theirs[2]}."
                )
                yield _Place(number, tensor.name).trouble(message, axis)


def _listed(names: Sequence[str]) -> str:
    if len(names) > NAMES_SHOWN:
        return ", ".join(names[:NAMES_SHOWN]) + f", … ({len(names)} in all)"
    return ", ".join(names) or "none"

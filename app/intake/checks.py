"""One answer for everything wrong with a request: all problems, a template to fill in, and trtexec's flags for it."""

import re
import shlex
from collections.abc import Sequence
from typing import Any

from app.errors import Refused
from app.intake.profiles import check_profiles, needs_profile, value_count
from trtforge.contract.models import Tensor
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import OptimizationProfile, ShapeRange

ERRORS_SHOWN = 200  # an answer stays small whatever the request holds

Range = tuple[int, int, int]  # min, opt, max
Template = list[dict[str, dict[str, Any]]]

# (first axis, every other axis), the first that keeps all tensors under the builder's limit of elements
GUESSES: tuple[tuple[Range, Range], ...] = (
    ((1, 1, 8), (64, 224, 448)),
    ((1, 1, 8), (8, 16, 32)),
    ((1, 1, 1), (1, 1, 1)),
)
PROFILE_CODES = frozenset({"profile_required", "profile_invalid", "shape_values_required", "shape_invalid"})
PLAIN_NAME = re.compile(r"[\w./-]+")  # trtexec splits at the first colon; other names go in single quotes


def refuse(problems: Sequence[Trouble], inputs: Sequence[Tensor]) -> None:
    """Raise one `Refused` for all of `problems`, with the code of the first; do nothing when there are none.

    Problems with profiles add `template`, a profile of `inputs` to fill in, and `trtexec`, flags that say the same.
    """
    if not problems:
        return
    first, more = problems[0], len(problems) - 1
    detail = f"{first.message} ({more} more under errors.)" if more else first.message
    extra: dict[str, Any] = {}
    if any(p.code in PROFILE_CODES for p in problems):
        profiles = _template(inputs)
        extra = {"template": _plain(profiles), "trtexec": trtexec_flags(profiles)}
    shown = tuple(problems[:ERRORS_SHOWN])
    raise Refused(first.code, detail, remedy=first.remedy, errors=shown, **extra)


def profile_template(inputs: Sequence[Tensor]) -> Template:
    """Return profiles for `inputs`, ready to edit and send; empty when every axis is fixed.

    The numbers are a start, not advice: an open first axis counts as a batch and gets 1/1/8, every other open axis
    64/224/448, less where a tensor would be too large; axes that share a name get the same. An input of unknown rank
    is shown with one axis. Values that decide shapes get 1/1/8 each.
    """
    return _plain(_template(inputs))


def trtexec_flags(profiles: Sequence[OptimizationProfile]) -> str:
    """Return the same profiles as flags of NVIDIA's `trtexec`, quoted for a shell."""
    words = []
    for number, profile in enumerate(profiles):
        if len(profiles) > 1:
            words.append(f"--profile={number}")
        words += [f"--{which}Shapes={_shapes(which, profile)}" for which in ("min", "opt", "max") if profile]
    return " ".join(map(shlex.quote, words))


def _shapes(which: str, profile: OptimizationProfile) -> str:
    return ",".join(f"{_quoted(name)}:{'x'.join(map(str, getattr(asked, which)))}" for name, asked in profile.items())


def _quoted(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else f"'{name}'"


def _template(inputs: Sequence[Tensor]) -> list[OptimizationProfile]:
    if not any(map(needs_profile, inputs)):
        return []
    for batch, other in GUESSES:
        profile = _filled(inputs, batch, other)
        if not check_profiles([profile], inputs):
            break
    return [profile]


def _filled(inputs: Sequence[Tensor], batch: Range, other: Range) -> OptimizationProfile:
    named: dict[str, Range] = {}
    profile = {}
    for tensor in filter(needs_profile, inputs):
        if tensor.shape_values:
            count = value_count(tensor) or 1
            profile[tensor.name] = ShapeRange(min=(1,) * count, opt=(1,) * count, max=(8,) * count, values=True)
            continue
        shape = (None,) if tensor.shape is None else tensor.shape
        axes = tensor.axes or (None,) * len(shape)
        ranges: list[Range] = []
        for axis, (extent, name) in enumerate(zip(shape, axes, strict=True)):
            guess = batch if axis == 0 else other
            if extent is not None:
                guess = (extent, extent, extent)
            elif name:
                guess = named.setdefault(name, guess)
            ranges.append(guess)
        low, opt, high = zip(*ranges, strict=True)
        profile[tensor.name] = ShapeRange(min=low, opt=opt, max=high)
    return profile


def _plain(profiles: Sequence[OptimizationProfile]) -> Template:
    return [
        {name: asked.model_dump(mode="json", exclude_defaults=True) for name, asked in profile.items()}
        for profile in profiles
    ]

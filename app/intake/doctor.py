"""The shape doctor: which layer breaks at which corner of a profile, and the nearest extent at which it does not.

What a builder does, measured with TensorRT for RTX 1.7: it needs the opt corner to be computable. A min or max corner
that is not lets the build succeed, and the engine refuses those shapes; but a window that slides over less than nothing
at min can crash the builder. So the first and the last are problems, the middle one is a warning.

The search takes it that an axis is legal on one side of a single extent. Where that does not hold, the extent that it
names is legal all the same, only not the smallest or largest such.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from time import monotonic, process_time
from typing import Any

from onnx import ModelProto

from app.intake.corners import Axis, Profile, Shapes, axes_of, corner, corner_values, flags, with_extent
from app.intake.evaluate import Broken, Evaluator
from app.intake.unfit import Finding, Report, finding

WIDE = 4096  # elements at max for each at min: one set of kernels has to serve all of them
LARGE = 8 << 30  # bytes of one tensor
LARGEST_COUNT = (1 << 31) - 1  # elements of one tensor, TensorRT's limit
NEAR = 4  # extents on each side that are all tried; then each try is twice as far
FARTHEST = 1 << 20
SEARCH_S = 2.0  # processor seconds for the searches in one profile; then the best that was found is named


class OutOfTime(Exception):
    """The model is too large to be followed in the time that was given."""


def examine(model: ModelProto, profiles: list[Profile], seconds: float, stopped: Callable[[], bool]) -> Report:
    """Examine each profile at its three corners, for at most `seconds`; what takes longer is left unsaid.

    `model` needs no weights. Profiles were checked before. Ends early when `stopped`.
    """
    report = Report()
    until = monotonic() + seconds

    def tick() -> None:
        if monotonic() > until or stopped():
            raise OutOfTime

    try:
        evaluator = Evaluator(model, tick)
        for number, profile in enumerate(profiles):
            _Examination(model, evaluator, number, profile, report).run()
    except OutOfTime:
        report.profiles += profiles[len(report.profiles) :]
    return report


@dataclass(frozen=True)
class Cure:
    """One axis moved from `had` to `extent`, where the corner can be computed; `exact`: and not one step before."""

    axis: Axis
    had: int
    extent: int
    exact: bool

    @property
    def found(self) -> dict[str, int]:
        if not self.exact:
            return {"legal": self.extent}
        return {"smallest_legal" if self.extent > self.had else "largest_legal": self.extent}

    def __str__(self) -> str:
        if not self.exact:
            return f"{self.extent} is legal"
        return f"the {'smallest' if self.extent > self.had else 'largest'} legal extent is {self.extent}"


class _Examination:
    """Of one profile."""

    def __init__(self, model: ModelProto, evaluator: Evaluator, number: int, profile: Profile, report: Report) -> None:
        self._evaluator, self._number, self._profile, self._report = evaluator, number, profile, report
        self._mended = profile
        self._axes = axes_of(model.graph, profile)
        self._search_until = process_time() + SEARCH_S

    def run(self) -> None:
        for which in ("opt", "min", "max"):
            broken = self._broken(corner(self._mended, which), which)
            if broken is None:
                if which == "max":
                    self._report.warnings += self._too_large()
                continue
            cure = self._cure(corner(self._mended, which), which)
            if cure:
                self._mended = with_extent(self._mended, which, cure.axis, cure.extent)
            self._tell(broken, which, cure)
        self._report.profiles.append(self._mended)
        self._report.warnings += self._too_wide()

    def _broken(self, shapes: Shapes, which: str) -> Broken | None:
        try:
            self._evaluator.at(shapes, corner_values(self._profile, which))
        except Broken as broken:
            return broken
        return None

    # ---- the search

    def _cure(self, shapes: Shapes, which: str) -> Cure | None:
        """Return the axis that is to blame with its nearest legal extent; None where no single axis is."""
        for axis in self._axes:
            for tried, before in self._steps(axis, axis.of(shapes), which):
                if process_time() > self._search_until:
                    return None
                if self._broken(axis.set(shapes, tried), which) is None:
                    return self._bisected(axis, shapes, which, before, tried)
        return None

    def _steps(self, axis: Axis, start: int, which: str) -> Iterator[tuple[int, int]]:
        """Extents to try, each with the illegal one before it: towards opt first, then ever farther both ways."""
        if which != "opt":
            opt = axis.of(corner(self._mended, "opt"))
            if opt != start:
                yield opt, start
            return
        for distance in range(1, NEAR + 1):
            yield start + distance, start + distance - 1
            if start > distance:
                yield start - distance, start - distance + 1
        up = down = start
        while up < FARTHEST and (up < 16 * start or up < 4096):
            yield up * 2, up
            up *= 2
            if down > 1:
                yield down // 2, down
                down //= 2

    def _bisected(self, axis: Axis, shapes: Shapes, which: str, illegal: int, legal: int) -> Cure:
        while abs(legal - illegal) > 1 and process_time() < self._search_until:
            middle = (legal + illegal) // 2
            if self._broken(axis.set(shapes, middle), which) is None:
                legal = middle
            else:
                illegal = middle
        return Cure(axis, axis.of(shapes), legal, abs(legal - illegal) <= 1)

    # ---- the words

    def _tell(self, broken: Broken, which: str, cure: Cure | None) -> None:
        where: dict[str, Any] = {"profile": self._number, "corner": which, "layer": broken.name, "op": broken.op}
        message = f"Profile {self._number}: at {which}, {broken.op} {broken.name} cannot be computed: {broken.why}"
        remedy = None
        if cure:
            where |= {"input": cure.axis.input, "axis": cure.axis.index, "extent": cure.had} | cure.found
            message += f"; {cure.axis} is {cure.had} there, {cure}"
            remedy = f"Change the profile: {flags(self._mended)}"
        if not self._is_fatal(broken, which):
            message += ". The engine will be built and will refuse such shapes"
            code = "axis_frozen" if broken.frozen else "shape_unusable"
            self._report.warnings.append(finding(code, message + ".", remedy, **where, given=broken.given))
        else:
            self._report.problems.append(finding("shape_invalid", message + ".", remedy, **where, given=broken.given))

    @staticmethod
    def _is_fatal(broken: Broken, which: str) -> bool:
        return broken.below_nothing or (which == "opt" and not broken.unsure)

    def _too_wide(self) -> Iterator[Finding]:
        for name, asked in self._profile.items():
            growth = prod(asked["max"]) // max(1, prod(asked["min"]))
            if not asked.get("values") and growth > WIDE:
                message = f"Profile {self._number}: {name} has {growth} times as many elements at max as at min."
                yield finding("range_wide", message, profile=self._number, input=name, growth=growth)

    def _too_large(self) -> Iterator[Finding]:
        size, name, count = self._evaluator.largest
        if size > LARGE or count > LARGEST_COUNT:
            message = f"Profile {self._number}: at max the tensor {name} has {count} elements in {size} bytes."
            yield finding("tensor_large", message, profile=self._number, corner="max", tensor=name, bytes=size)

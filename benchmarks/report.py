"""What a measurement says, and the table of all of them."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import ceil
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Spread:
    """Values of one kind, in the unit of their line: the middle one, and the ends."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        if self.count == 1:
            return figure(self.median)
        return f"{figure(self.median)} ({figure(self.low)}..{figure(self.high)}, n={self.count})"


@dataclass(frozen=True)
class Line:
    """One figure beside its floor or the usual way, both taken in the same run.

    `ratio` is ours over theirs, of the medians. `met` is None where nothing is promised.
    """

    what: str
    unit: str
    ours: Spread
    beside: str
    theirs: Spread | None
    goal: str
    met: bool | None
    how: str

    @property
    def ratio(self) -> float | None:
        return self.ours.median / self.theirs.median if self.theirs and self.theirs.median else None

    def as_json(self) -> dict[str, Any]:
        spreads = {name: s.__dict__ if s else None for name, s in (("ours", self.ours), ("theirs", self.theirs))}
        return {**self.__dict__, **spreads, "ratio": self.ratio}


def figure(value: float) -> str:
    """Three digits that count, no exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` (0 to 1) of all values do not exceed."""
    return sorted(values)[max(0, ceil(len(values) * share) - 1)]


def table(lines: Sequence[Line]) -> Table:
    shown = Table(show_lines=True)
    for column in ("what", "ours", "beside it", "ratio", "goal", "met"):
        shown.add_column(column, overflow="fold")
    for line in lines:
        theirs = f"{line.beside}: {line.theirs}" if line.theirs else line.beside
        ratio = f"{line.ratio:.3g}x" if line.ratio is not None else ""
        met = {True: "yes", False: "NO", None: ""}[line.met]
        shown.add_row(line.what, f"{line.ours} {line.unit}", theirs, ratio, line.goal, met)
    return shown


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    return {
        "machine": f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "load_before": f"{os.getloadavg()[0]:.2f}",
        "python": platform.python_version(),
        "tensorrt_rtx": version("tensorrt-rtx"),
        "trtforge": version("trtforge-server"),
    }

"""How long a build will still take, told only by builds that ended: no history, no estimate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from trtforge.contract.builds import Estimate

MARGIN = 1.3  # bounds go this far beyond what was seen: a few builds do not show the extremes
WIDEST = 1.4  # from the median, either way: wider bounds would be true and useless
MOST_PACE = 2.0  # a busy or an idle day changes what is left by at most this factor: first marks lie close together
SEPARATOR = " > "


def path_of(*names: str) -> str:
    """Return the key under which a stage or phase is remembered."""
    return SEPARATOR.join(names)


@dataclass(frozen=True)
class Past:
    """One finished build: its seconds in all, and per stage or phase path those from its start to the end."""

    total_s: float
    marks: Mapping[str, float]

    def stretched(self, by: float) -> "Past":
        """Return the same build as if it had been `by` times as long."""
        return Past(self.total_s * by, {path: left * by for path, left in self.marks.items()})


@dataclass(frozen=True)
class History:
    """Comparable builds, and in words why they are."""

    pasts: Sequence[Past]
    basis: str


@dataclass(frozen=True)
class Mark:
    """A stage or phase that began `ago` seconds before now."""

    path: str
    ago: float


def estimate(history: History, elapsed: float, marks: Sequence[Mark]) -> Estimate | None:
    """Return bounds for the total and the remaining seconds; `marks` newest first.

    The newest mark that the history knows is what it goes by, at the pace of this build until then. None when there is
    no history, or the build has outlived it: then the past says nothing any more.
    """
    spans, ago = _spans(history.pasts, elapsed, marks)
    if not spans:
        return None
    middle = median(spans)
    low = max(min(spans) / MARGIN, middle / WIDEST) - ago
    high = min(max(spans) * MARGIN, middle * WIDEST) - ago
    if high <= 0:
        return None
    low = max(0.0, low)
    total = (round(elapsed + low, 3), round(elapsed + high, 3))
    return Estimate(total_s=total, remaining_s=(round(low, 3), round(high, 3)), basis=history.basis)


def _spans(pasts: Sequence[Past], elapsed: float, marks: Sequence[Mark]) -> tuple[list[float], float]:
    """Return what the pasts say how long it takes from the newest mark they know, and how long ago ours was."""
    for mark in marks:
        if known := [past for past in pasts if mark.path in past.marks]:
            pace = _pace(known, marks[-1], mark)
            return [past.marks[mark.path] * pace for past in known], mark.ago
    return [past.total_s for past in pasts], elapsed


def _pace(pasts: Sequence[Past], oldest: Mark, newest: Mark) -> float:
    """Return how much longer than the pasts this build is likely to take, by what it took between two marks.

    Half of it is believed, as a factor (the root): a busy machine stays busy for a while, but not surely to the end.
    """
    ours = oldest.ago - newest.ago
    theirs = [past.marks[oldest.path] - past.marks[newest.path] for past in pasts if oldest.path in past.marks]
    usual = median(theirs) if theirs else 0.0
    if ours <= 0 or usual <= 0:
        return 1.0
    return min(MOST_PACE, max(1 / MOST_PACE, sqrt(ours / usual)))

"""Where the time of an attempt went: per stage of ours, and per path of phases of the builder's."""

from collections import defaultdict

from trtforge.contract.engines import PhaseTiming, Timings


class Timing:
    """Adds up stages and phases as they end. Times are seconds on one clock that never jumps."""

    def __init__(self, at: float) -> None:
        self._stage, self._since = "prepare", at
        self._stages: defaultdict[str, float] = defaultdict(float)
        self._paths: dict[int, tuple[str, ...]] = {}
        self._phases: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)

    def enter(self, stage: str, at: float) -> None:
        self._stages[self._stage] += at - self._since
        self._stage, self._since = stage, at

    def opened(self, phase: int, parent: int | None, name: str) -> None:
        above = self._paths.get(parent, ()) if parent is not None else ()
        self._paths[phase] = (*above, name)

    def closed(self, phase: int, seconds: float) -> None:
        if path := self._paths.pop(phase, None):
            self._phases[path].append(seconds)

    def total(self, at: float) -> Timings:
        """Return all sums; the stage that runs now counts until `at`."""
        stages = {**self._stages, self._stage: self._stages.get(self._stage, 0.0) + at - self._since}
        return Timings(
            stages={name: round(seconds, 3) for name, seconds in stages.items()},
            phases=tuple(
                PhaseTiming(path=path, count=len(times), seconds=round(sum(times), 3))
                for path, times in self._phases.items()
            ),
        )

"""What only the supervisor knows of a running build: steps, silence, and whether its child is busy."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from time import monotonic

from trtforge.contract.builds import Activity, LivePhase, Progress
from trtforge.contract.events import Event
from trtforge.contract.progress import Picture, fold

BUSY_SHARE = 0.05  # of one core, over the window below: less is idle (a waiting process still ticks a little)
WINDOW = 5  # samples, one a second


class LiveBuild:
    """The folded picture of one attempt, with its clocks. Used on the event loop only."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._began = self._last_word = monotonic()
        self._samples: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # (monotonic, CPU seconds)
        self._rss: int | None = None
        self.picture = Picture()

    def heard(self) -> None:
        """The child said something."""
        self._last_word = monotonic()

    def fold(self, event: Event) -> None:
        self.picture = fold(self.picture, event, self._now())

    def sample(self, cpu_s: float, rss_bytes: int) -> None:
        self._samples.append((monotonic(), cpu_s))
        self._rss = rss_bytes

    @property
    def activity(self) -> Activity | None:
        if len(self._samples) < 2:
            return None
        (t0, cpu0), (t1, cpu1) = self._samples[0], self._samples[-1]
        return "working" if cpu1 - cpu0 >= BUSY_SHARE * (t1 - t0) else "idle"

    def progress(self) -> Progress:
        now, at = monotonic(), self._now()
        return Progress(
            elapsed_s=round(now - self._began, 3),
            silent_s=round(now - self._last_word, 3),
            activity=self.activity,
            cpu_s=round(self._samples[-1][1], 3) if self._samples else None,
            rss_bytes=self._rss,
            phases=tuple(
                LivePhase(
                    id=p.id,
                    parent=p.parent,
                    name=p.name,
                    step=p.step,
                    steps=p.steps,
                    elapsed_s=round(max(0.0, (at - p.since).total_seconds()), 3),
                )
                for p in self.picture.phases.values()
            ),
        )


class Live:
    """The running builds of this process, by id."""

    def __init__(self) -> None:
        self._builds: dict[str, LiveBuild] = {}

    def get(self, build_id: str) -> LiveBuild | None:
        return self._builds.get(build_id)

    def add(self, build_id: str, build: LiveBuild) -> None:
        self._builds[build_id] = build

    def remove(self, build_id: str) -> None:
        self._builds.pop(build_id, None)

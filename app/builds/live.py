"""What only the supervisor knows of a running build: steps, silence, and whether its child is busy."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from time import monotonic

from app.builds.device_use import GpuUse
from app.domain.estimate import History, Mark, Past, estimate, path_of
from trtforge.contract.builds import Activity, Estimate, LivePhase, Progress
from trtforge.contract.events import Event, PhaseStarted, StageEntered
from trtforge.contract.progress import Picture, fold

BUSY_SHARE = 0.05  # of one core, over the window below: less is idle (a waiting process still ticks a little)
GPU_BUSY = 5  # percent of a GPU: less is idle
WINDOW = 3  # samples, one a second


Sample = tuple[float, float, int]  # when (monotonic), CPU seconds until then, percent of the GPU


def _busy(first: Sample, last: Sample) -> bool:
    return last[2] >= GPU_BUSY or last[1] - first[1] >= BUSY_SHARE * (last[0] - first[0])


class LiveBuild:
    """The folded picture of one attempt, with its clocks. Used on the event loop only."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._began = self._last_word = self._last_sign = monotonic()
        self._marks: dict[str, float] = {}  # path of a stage or phase → when it first began, in that order
        self.history: History | None = None
        self._samples: deque[Sample] = deque(maxlen=WINDOW)
        self._rss: int | None = None
        self._gpu: GpuUse | None = None
        self.picture = Picture()

    def heard(self) -> None:
        """The child said something."""
        self._last_word = self._last_sign = monotonic()

    def fold(self, event: Event) -> None:
        self.picture = fold(self.picture, event, self._now())
        if isinstance(event, StageEntered | PhaseStarted):
            self._marks.setdefault(self._path(event), monotonic())

    def _path(self, event: StageEntered | PhaseStarted) -> str:
        names: list[str] = []
        phase = self.picture.phases.get(event.phase.id) if isinstance(event, PhaseStarted) else None
        while phase:
            names.insert(0, phase.name)
            phase = self.picture.phases.get(phase.parent) if phase.parent is not None else None
        return path_of(self.picture.stage or "", *names)

    def past(self) -> Past:
        """Return this build as history for the next: it has just ended."""
        now = monotonic()
        return Past(round(now - self._began, 3), {path: round(now - at, 3) for path, at in self._marks.items()})

    def sample(self, cpu_s: float, rss_bytes: int, gpu: GpuUse | None = None) -> None:
        now = monotonic()
        sample = (now, cpu_s, (gpu and gpu.utilization) or 0)
        if not self._samples or _busy(self._samples[-1], sample):
            self._last_sign = now
        self._samples.append(sample)
        self._rss, self._gpu = rss_bytes, gpu

    @property
    def idle_s(self) -> float:
        """Seconds in which the builder neither said nor computed anything, as far as it was looked at.

        The time since the last sample does not count: when this process could not look, nobody knows.
        """
        return max(0.0, self._samples[-1][0] - self._last_sign) if self._samples else 0.0

    @property
    def activity(self) -> Activity | None:
        if len(self._samples) < 2:
            return None
        return "working" if _busy(self._samples[0], self._samples[-1]) else "idle"

    def progress(self) -> Progress:
        now, at = monotonic(), self._now()
        return Progress(
            elapsed_s=round(now - self._began, 3),
            silent_s=round(now - self._last_word, 3),
            activity=self.activity,
            cpu_s=round(self._samples[-1][1], 3) if self._samples else None,
            rss_bytes=self._rss,
            gpu_utilization=self._gpu and self._gpu.utilization,
            gpu_memory_bytes=self._gpu and self._gpu.memory_bytes,
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
            estimate=self._estimate(now),
        )

    def _estimate(self, now: float) -> Estimate | None:
        if self.history is None:
            return None
        marks = [Mark(path, now - at) for path, at in reversed(self._marks.items())]
        return estimate(self.history, now - self._began, marks)


class Live:
    """The running builds of this process, by id."""

    def __init__(self) -> None:
        self._builds: dict[str, LiveBuild] = {}

    def get(self, build_id: str) -> LiveBuild | None:
        return self._builds.get(build_id)

    def __len__(self) -> int:
        return len(self._builds)

    def add(self, build_id: str, build: LiveBuild) -> None:
        self._builds[build_id] = build

    def remove(self, build_id: str) -> None:
        self._builds.pop(build_id, None)

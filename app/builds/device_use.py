"""What went on on the device of one attempt: the GPU's work for the heartbeat, and who else was there for the manifest."""

from dataclasses import asdict, dataclass
from time import monotonic

from app.worker.devices import Device
from app.worker.messages import GpuProcess, GpuSample
from trtforge.contract.engines import DeviceNeighbour, ManifestDevice

SETTLE = 0.3  # seconds after the start in which a sample may still show what ran before
MOST_NEIGHBOURS = 16  # kept in the manifest


@dataclass(frozen=True)
class GpuUse:
    """By this build, as far as it can be told from others: percent of the last second, bytes now."""

    utilization: int | None
    memory_bytes: int | None


class DeviceUse:
    """Follows one attempt. `look` as often as the child's own use is looked at."""

    def __init__(self, device: Device) -> None:
        self._device, self._since = device, monotonic() + SETTLE
        self._ours: set[int] = set()
        self._neighbours: dict[int, GpuProcess] = {}
        self._trouble: str | None = None
        self._seen: GpuSample | None = None
        self._samples = 0

    def look(self, pids: set[int]) -> GpuUse | None:
        """Take in what was last seen on the GPU; `pids` are the child's. None where no GPU is watched."""
        if self._device.gpu is None:
            return None
        self._ours |= pids
        self._trouble = self._trouble or self._device.trouble
        sample = self._device.sample(self._since)
        if sample is None or sample is self._seen:
            return self._use(sample)
        self._seen, self._samples = sample, self._samples + 1
        for process in sample.processes:
            if process.pid not in self._ours:
                self._neighbours[process.pid] = _more(self._neighbours.get(process.pid), process)
        return self._use(sample)

    def _use(self, sample: GpuSample | None) -> GpuUse | None:
        """The GPU's own figure is ours while nobody else is listed: a foreign process must not make us look busy."""
        if sample is None:
            return None
        ours = [p for p in sample.processes if p.pid in self._ours]
        if len(ours) == len(sample.processes):
            return GpuUse(sample.utilization, _sum([p.memory_bytes for p in ours]))
        return GpuUse(_sum([p.utilization for p in ours]), _sum([p.memory_bytes for p in ours]))

    def account(self) -> ManifestDevice | None:
        """Return what the manifest says of it; None for a build on processors."""
        gpu = self._device.gpu
        if gpu is None:
            return None
        self.look(set())
        worst = sorted(self._neighbours.values(), key=lambda p: -(p.memory_bytes or 0))
        return ManifestDevice(
            **asdict(gpu),
            samples=self._samples,
            neighbours=tuple(
                DeviceNeighbour(pid=p.pid, memory_bytes=p.memory_bytes, utilization=p.utilization)
                for p in worst[:MOST_NEIGHBOURS]
            ),
            trouble=self._trouble,
        )

    def warnings(self) -> list[str]:
        said = []
        if n := len(self._neighbours):
            said.append(
                f"{n} other process{'es' if n > 1 else ''} computed on the GPU during the build: "
                "the choice of kernels may have suffered from it."
            )
        if self._trouble:
            said.append(f"The GPU was in trouble during the build: {self._trouble}.")
        return said


def _sum(figures: list[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _more(before: GpuProcess | None, now: GpuProcess) -> GpuProcess:
    if before is None:
        return now
    return GpuProcess(now.pid, _most(before.memory_bytes, now.memory_bytes), _most(before.utilization, now.utilization))


def _most(a: int | None, b: int | None) -> int | None:
    return max((figure for figure in (a, b) if figure is not None), default=None)

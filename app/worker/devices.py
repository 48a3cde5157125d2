"""What builds run on: processors, or GPUs that a child watches through NVML, each with a lock of its own."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import structlog

from app.worker.messages import Gpu, GpuProcess, GpuSample, GpusFound, GpusSampled, NoGpu, Stopped, WatchRequest
from app.worker.process import Child, ProtocolBroken

SAMPLE_EVERY = 1.0  # seconds
SILENT = 15.0  # seconds without a word after which the driver counts as hanging
ASK_AGAIN = 2.0  # seconds until a driver in trouble is asked again
FRESH = 5.0  # seconds that a sample counts

log = structlog.get_logger()


class NoGpus(Exception):
    """No GPU can be used; the text says why."""


class Watch:
    """Knows the GPUs of this machine and what happens on them, from a child that is started when it is first asked."""

    def __init__(self, every_s: float = SAMPLE_EVERY, silent_s: float = SILENT) -> None:
        self._every_s, self._silent_s = every_s, silent_s
        self._trouble: str | None = "the NVIDIA driver has not answered yet"
        self._found: GpusFound | None = None
        self._samples: dict[str, tuple[float, GpuSample]] = {}
        self._loop: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._sampled = asyncio.Event()

    async def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs as NVML tells them now. Raises `NoGpus`."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._follow())
        await self._answered.wait()
        if self._trouble or self._found is None:
            raise NoGpus(self._trouble or "the NVIDIA driver shows no GPU")
        return tuple(self._found.gpus)

    @property
    def unusable(self) -> list[str]:
        """GPUs that NVML shows and that cannot be asked, each with the reason."""
        return self._found.troubles if self._found else []

    def trouble(self, gpu: Gpu) -> str | None:
        """Why `gpu` cannot be used now: its driver does not answer, it is gone, or it is no longer what it was."""
        if self._trouble or self._found is None:
            return self._trouble
        now = next((known for known in self._found.gpus if known.uuid == gpu.uuid), None)
        if now is None:
            return "; ".join([f"GPU {gpu.index} ({gpu.uuid}) is gone", *self._found.troubles])
        if now != gpu:
            return f"GPU {gpu.uuid} was {_facts(gpu)} at the start and is {_facts(now)} now; restart the service"
        sample = self.sample(gpu)
        return sample.trouble if sample else None

    def sample(self, gpu: Gpu, since: float = 0.0) -> GpuSample | None:
        """Return what was last seen on `gpu`: not older than `FRESH`, nor than `since` on the monotonic clock."""
        at, sample = self._samples.get(gpu.uuid, (0.0, None))
        return sample if at >= max(since, monotonic() - FRESH) else None

    async def next_sample(self) -> None:
        """Wait for a sample that was taken from now on, as long as one counts."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH):
                for _ in range(2):  # the first may have been on its way
                    self._sampled.clear()
                    await self._sampled.wait()

    async def stop(self) -> None:
        if self._loop:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None

    async def _follow(self) -> None:
        while True:
            with TemporaryDirectory(prefix="trtforge-watch-", ignore_cleanup_errors=True) as folder:
                try:
                    child = await Child.spawn(WatchRequest(self._every_s), Path(folder), lambda _: None)
                    await self._hear_out(child)
                except OSError as error:
                    self._note(f"NVML cannot be asked: {error}")
            if self._trouble:
                await asyncio.sleep(ASK_AGAIN)

    async def _hear_out(self, child: Child) -> None:
        """Listen until the child ends, and note why there is no GPU, unless it only wants to look anew."""
        try:
            if trouble := await self._hear(child):
                self._note(trouble)
        except ProtocolBroken as error:
            self._note(f"NVML cannot be asked: {error}")
        except TimeoutError:
            self._note(f"the NVIDIA driver has not answered for {self._silent_s:g} seconds")
        finally:
            child.kill()
            await child.wait()  # one that the driver holds is not replaced: it would hold the next one too

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.error("gpus_unusable", reason=trouble)
        self._trouble = trouble
        self._answered.set()

    async def _hear(self, child: Child) -> str | None:
        messages = child.messages()
        while True:
            try:
                async with asyncio.timeout(self._silent_s):  # wait_for would swallow a cancel that meets a message
                    message = await anext(messages)
            except StopAsyncIteration:
                ended = await child.wait()
                return f"asking NVML ended with {ended.signal or ended.code}"
            match message:
                case GpusFound():
                    self._found, self._trouble = message, None
                    self._answered.set()
                case GpusSampled():
                    self._samples = {sample.uuid: (monotonic(), sample) for sample in message.samples}
                    self._sampled.set()
                case NoGpu():
                    return message.reason
                case Stopped():
                    return None


@dataclass(frozen=True)
class Device:
    """Where one worker builds. `locks` are names in the lock folder, one for each build that runs at once."""

    locks: tuple[str, ...]
    gpu: Gpu | None = None
    watch: Watch | None = None

    @property
    def slots(self) -> int:
        return len(self.locks)

    @property
    def name(self) -> str:
        return self.gpu.uuid if self.gpu else "cpu"

    @property
    def trouble(self) -> str | None:
        """Why nothing can be built here now."""
        return self.watch.trouble(self.gpu) if self.watch and self.gpu else None

    @property
    def environment(self) -> dict[str, str]:
        """What a child of this device sees: this GPU alone."""
        return {"CUDA_VISIBLE_DEVICES": self.gpu.uuid} if self.gpu else {}

    def sample(self, since: float = 0.0) -> GpuSample | None:
        return self.watch.sample(self.gpu, since) if self.watch and self.gpu else None

    def strangers(self) -> list[GpuProcess] | None:
        """Return who computes on the GPU while nothing is built here; None while nobody knows."""
        if self.gpu is None:
            return []
        sample = self.sample()
        return sample.processes if sample else None


def processors(slots: int) -> Device:
    return Device(tuple(f"cpu-{n}.lock" for n in range(slots)))


def gpu_device(gpu: Gpu, watch: Watch) -> Device:
    """One build at a time: others would disturb the timings of its kernels."""
    return Device((f"gpu-{re.sub(r'[^A-Za-z0-9-]', '_', gpu.uuid)}.lock",), gpu, watch)


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES leave, in the order they name.

    As CUDA does, what follows a name that means none is not looked at; numbers count as in nvidia-smi. Numbers of
    NVIDIA_VISIBLE_DEVICES are those of the host and were applied by the container runtime.
    """
    allowed = environment.get("NVIDIA_VISIBLE_DEVICES", "all")
    if allowed in ("none", "void"):
        return []
    if re.match("(GPU|MIG)-", allowed):
        gpus = _named(gpus, allowed)
    asked = environment.get("CUDA_VISIBLE_DEVICES")
    return list(gpus) if asked is None else _named(gpus, asked)


def _named(gpus: Sequence[Gpu], names: str) -> list[Gpu]:
    chosen: list[Gpu] = []
    for name in (word.strip() for word in names.split(",")):
        fitting = [gpu for gpu in gpus if name and (gpu.index.partition(":")[0] == name or gpu.uuid.startswith(name))]
        if not fitting:
            break
        chosen += [gpu for gpu in fitting if gpu not in chosen]
    return chosen


def _facts(gpu: Gpu) -> str:
    parts = (gpu.name, gpu.mig_profile, f"driver {gpu.driver}", f"CUDA {gpu.cuda}")
    return ", ".join(part for part in parts if part)

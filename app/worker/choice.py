"""Which builder this machine builds with, and on what: from what imports, what NVML shows, and what the settings say."""

import os
from dataclasses import dataclass
from importlib.util import find_spec

from app.settings import Settings
from app.worker.devices import Device, NoGpus, Watch, gpu_device, processors, visible
from app.worker.messages import Gpu, Probed
from app.worker.probe import BuilderUnusable, probe

OLDEST = (7, 5)  # compute capability that TensorRT 10 and 11 serve


@dataclass(frozen=True)
class Choice:
    """`why` is a sentence for the operator; every device is a worker of its own."""

    probed: Probed
    why: str
    devices: tuple[Device, ...]


async def choose(settings: Settings, watch: Watch) -> Choice:
    """Return the builder and the devices for it. Raises `BuilderUnusable` with the reason when there are none."""
    if settings.builder != "auto":
        return await _built_with(settings.builder, settings, watch, "TRTFORGE_BUILDER says so")
    not_tensorrt = await _why_not_tensorrt(watch)
    if not_tensorrt is None:
        try:
            return await _built_with(
                "tensorrt", settings, watch, "it is installed, and NVML shows a GPU that it serves"
            )
        except BuilderUnusable as error:
            not_tensorrt = str(error)
    try:
        choice = await _built_with("tensorrt_rtx", settings, watch, f"not tensorrt: {not_tensorrt}")
    except BuilderUnusable as error:
        raise BuilderUnusable(f"{error}\nNor tensorrt: {not_tensorrt}") from error
    if not any(device.gpu for device in choice.devices):
        await watch.stop()  # nobody asks it again
    return choice


async def _why_not_tensorrt(watch: Watch) -> str | None:
    if find_spec("tensorrt") is None:
        return "it is not installed"
    try:
        await _serving("tensorrt", watch)
    except NoGpus as error:
        return str(error)
    return None


async def _built_with(builder: str, settings: Settings, watch: Watch, why: str) -> Choice:
    probed = await probe(builder, settings.probe_timeout_s)
    on_gpu = settings.device == "gpu" or (settings.device == "auto" and builder == "tensorrt")
    if not on_gpu:
        return Choice(probed, why, (processors(settings.slots),))
    try:
        gpus = await _serving(builder, watch)
    except NoGpus as error:
        raise BuilderUnusable(f"{builder} has no GPU to build on: {error}") from error
    return Choice(probed, why, tuple(gpu_device(gpu, watch) for gpu in gpus))


async def _serving(builder: str, watch: Watch) -> list[Gpu]:
    """Return the GPUs that may be used and that `builder` serves. Raises `NoGpus`."""
    known = await watch.gpus()
    allowed = visible(known, os.environ)
    if not allowed:
        raise NoGpus(f"CUDA_VISIBLE_DEVICES or NVIDIA_VISIBLE_DEVICES hides every GPU of {_list(known)}")
    able = [gpu for gpu in allowed if builder != "tensorrt" or _number(gpu) >= OLDEST]
    if not able:
        raise NoGpus(f"TensorRT serves compute capability {OLDEST[0]}.{OLDEST[1]} and newer, not {_list(allowed)}")
    return able


def _number(gpu: Gpu) -> tuple[int, ...]:
    return tuple(int(part) for part in gpu.compute_capability.split("."))


def _list(gpus: list[Gpu] | tuple[Gpu, ...]) -> str:
    return ", ".join(f"{gpu.name} ({gpu.compute_capability}, {gpu.uuid})" for gpu in gpus)

"""In a child: ask the NVIDIA driver which GPUs there are and who uses them. A driver that hangs holds only this child."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, time
from typing import Any

import pynvml

from app.worker.messages import (
    Gpu,
    GpuProcess,
    GpuSample,
    GpusFound,
    GpusSampled,
    Message,
    NoGpu,
    Stopped,
    WatchRequest,
)

AFRESH = 5.0  # seconds until all is asked anew while a GPU is in trouble: NVML forgets nothing it has seen
LISTED = 64  # processes of one GPU that are told

_WORDS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not there: no NVIDIA driver is installed, or the container "
    "was started without GPUs",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not ask the NVIDIA driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA library is of another version than the loaded driver: "
    "the driver was updated, reload it or restart the host",
    pynvml.NVML_ERROR_GPU_IS_LOST: "it has fallen off the bus, a reset or a restart of the host brings it back",
}

Handle = Any  # NVML's own pointer


def watch(request: WatchRequest, send: Callable[[Message], None], stop: threading.Event) -> NoGpu | Stopped:
    """Tell the GPUs once, then a sample of each every `every_s` seconds. Ends when asked to, or to be asked anew."""
    began, since = monotonic(), 0
    try:
        pynvml.nvmlInit()
        found, troubles = _found()
    except pynvml.NVMLError as error:
        return NoGpu(_reason(error))
    if not found:
        return NoGpu("; ".join(troubles) or "the NVIDIA driver shows no GPU")
    send(GpusFound([gpu for gpu, _ in found], troubles))
    while True:
        samples = [_sample(gpu, handle, since) for gpu, handle in found]
        since = int(time() * 1e6)
        send(GpusSampled(samples))
        lost = [sample.trouble for sample in samples if sample.trouble]
        if len(lost) == len(samples):
            return NoGpu("; ".join(lost))
        if (lost or troubles) and monotonic() - began > AFRESH:
            return Stopped("between_stages")
        if stop.wait(request.every_s):
            return Stopped("between_stages")


def _found() -> tuple[list[tuple[Gpu, Handle]], list[str]]:
    driver, cuda = str(pynvml.nvmlSystemGetDriverVersion()), pynvml.nvmlSystemGetCudaDriverVersion()
    versions = {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}
    found, troubles = [], []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            found += list(_gpus(index, pynvml.nvmlDeviceGetHandleByIndex(index), versions))
        except pynvml.NVMLError as error:
            troubles.append(f"GPU {index}: {_reason(error)}")
    return found, troubles


def _gpus(index: int, handle: Handle, versions: dict[str, str]) -> Iterator[tuple[Gpu, Handle]]:
    """Yield the GPU, or its instances where MIG is on: the whole of it can then not be used."""
    name = str(pynvml.nvmlDeviceGetName(handle))
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    same: dict[str, Any] = {"name": name, "compute_capability": f"{major}.{minor}", **versions}
    if not _is_split(handle):
        yield _gpu(handle, str(index), None, same), handle
        return
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with suppress(pynvml.NVMLError_NotFound):  # numbers have gaps
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            yield _gpu(instance, f"{index}:{number}", _mig_profile(instance), same), instance


def _gpu(handle: Handle, index: str, mig_profile: str | None, same: dict[str, Any]) -> Gpu:
    memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    return Gpu(uuid=uuid, memory_bytes=memory, mig_profile=mig_profile, index=index, **same)


def _is_split(handle: Handle) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):  # most GPUs; old drivers
        return False


def _mig_profile(instance: Handle) -> str:
    """NVML names an instance "NVIDIA A100-SXM4-40GB MIG 1g.5gb"; profiles have no other way to be asked."""
    named = re.search(r" MIG (\S+)$", str(pynvml.nvmlDeviceGetName(instance)))
    if named:
        return named[1]
    attributes = pynvml.nvmlDeviceGetAttributes(instance)
    return f"{attributes.gpuInstanceSliceCount}g.{round(attributes.memorySizeMB / 1024)}gb"


def _sample(gpu: Gpu, handle: Handle, since: int) -> GpuSample:
    try:
        used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        busy = _unless_unknown(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        return GpuSample(gpu.uuid, busy, used, _processes(handle, since), None)
    except pynvml.NVMLError as error:
        return GpuSample(gpu.uuid, None, None, [], f"GPU {gpu.index} ({gpu.uuid}): {_reason(error)}")


def _processes(handle: Handle, since: int) -> list[GpuProcess]:
    running = _unless_unknown(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    samples = _unless_unknown(lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, since)) or []
    busy = {int(sample.pid): int(sample.smUtil) for sample in samples}
    return [GpuProcess(int(p.pid), p.usedGpuMemory, busy.get(int(p.pid))) for p in running[:LISTED]]


def _unless_unknown(ask: Callable[[], Any]) -> Any:
    """Return the answer, or None where this GPU, driver or user gets none. Raises `NVMLError` when the GPU is gone."""
    try:
        return ask()
    except (
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_NotFound,
        pynvml.NVMLError_NoPermission,
        pynvml.NVMLError_InvalidArgument,
        pynvml.NVMLError_InsufficientSize,
    ):
        return None


def _reason(error: Any) -> str:
    return f"{_WORDS[error.value]} (NVML: {error})" if error.value in _WORDS else f"NVML: {error}"

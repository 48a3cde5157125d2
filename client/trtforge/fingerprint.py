"""What this machine can say of itself, for the service to find the engine it can load."""

import platform
from importlib.metadata import PackageNotFoundError, version

from trtforge.contract.target import TargetSelector
from trtforge.gpus import Gpu, own_gpu

__all__ = ["Gpu", "fingerprint"]

# Package that brings a runtime, and the builder whose plans it loads; the first that is installed counts.
RUNTIMES = {
    "tensorrt_rtx": "tensorrt_rtx",
    "tensorrt_cu13": "tensorrt",
    "tensorrt_cu12": "tensorrt",
    "tensorrt": "tensorrt",
}


def fingerprint(gpu: Gpu | None = None) -> TargetSelector:
    """Return this machine: the runtime that is installed, by default that of TensorRT for RTX, and the GPU.

    `gpu` is by default what the driver tells of the one that CUDA programs get; without a driver nothing is said of it.
    Plans load only in the very version that made them, so a version that the service does not build with is told, not
    papered over.
    """
    said: dict[str, object] = {"os": platform.system().lower(), "arch": platform.machine(), "builder": "tensorrt_rtx"}
    for package, builder in RUNTIMES.items():
        try:
            said |= {"builder": builder, "builder_version": version(package)}
        except PackageNotFoundError:
            continue
        break
    if gpu := gpu or own_gpu():
        said |= {"gpu": gpu.name, "driver": gpu.driver, "compute_capabilities": (gpu.compute_capability,)}
        said |= {"cuda": gpu.cuda, "mig_profile": gpu.mig_profile}
    return TargetSelector.model_validate(said)

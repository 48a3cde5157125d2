"""What this machine can say of itself, for the service to find the engine it can load."""

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from trtforge.contract.target import TargetSelector

# Package that brings the runtime, and the builder whose plans it loads; the first that is installed counts.
RUNTIMES = {"tensorrt_rtx": "tensorrt_rtx"}


@dataclass(frozen=True)
class Gpu:
    """What NVML tells of one GPU; plans of TensorRT for RTX need the compute capability alone."""

    name: str
    driver: str
    compute_capability: str  # "8.9"
    cuda: str | None = None
    mig_profile: str | None = None


def fingerprint(gpu: Gpu | None = None) -> TargetSelector:
    """Return this machine, for a runtime of TensorRT for RTX: its version when it is installed, and the `gpu` if known.

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
    if gpu:
        said |= {"gpu": gpu.name, "driver": gpu.driver, "compute_capabilities": (gpu.compute_capability,)}
        said |= {"cuda": gpu.cuda, "mig_profile": gpu.mig_profile}
    return TargetSelector.model_validate(said)

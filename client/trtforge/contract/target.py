"""Targets: the hardware fingerprint an engine is for, and what a builder on it can do."""

from typing import Literal

from pydantic import Field

from trtforge.contract.base import Asked, Instant, Wire

Builder = Literal["tensorrt_rtx", "tensorrt"]


class Target(Wire):
    """A full fingerprint. RTX targets are portable: gpu, driver, cuda and mig_profile are null."""

    builder: Builder
    builder_version: str
    gpu: str | None = None
    compute_capabilities: tuple[str, ...]  # "8.9"; ascending and unique: the list is part of the engine key
    driver: str | None = None
    cuda: str | None = None
    mig_profile: str | None = None
    os: str
    arch: str


class TargetSelector(Asked):
    """Any subset of a target's fields; those given must single out one known target."""

    builder: Builder | None = None
    builder_version: str | None = None
    gpu: str | None = None
    compute_capabilities: tuple[str, ...] | None = Field(default=None, max_length=64)
    driver: str | None = None
    cuda: str | None = None
    mig_profile: str | None = None
    os: str | None = None
    arch: str | None = None


class SpecDefaults(Wire):
    """Constants that fill what a build spec leaves out: never taken from the machine, so keys agree everywhere."""

    precision: str
    optimization_level: int
    workspace_bytes: int


class Option(Wire):
    """What may be asked for of an option that only some builders have, and what is taken when nothing is."""

    choices: tuple[str | bool, ...] = ()
    several: bool = False  # any number of the choices
    range: tuple[int, int] | None = None  # of a number, which is a power of two where `power_of_two`
    power_of_two: bool = False
    default: bool | str | tuple[str, ...] | None = None  # None: the builder's own, which follows from the GPU model


class Capabilities(Wire):
    """What the builder on a target can do; probed once at start, decides defaults and refusals."""

    precisions: tuple[str, ...]
    optimization_level: tuple[int, int]  # lowest, highest
    workspace_bytes: tuple[int, int]
    compute_capabilities: tuple[str, ...]  # all that may be asked for; the target's own list is the default
    opset: int  # highest of the default ONNX domain that the parser knows
    needs_gpu: bool
    timing_cache: bool
    portable: bool
    defaults: SpecDefaults
    options: dict[str, Option] = {}  # by the field of the build spec; what is not here the builder does not do
    plugins: dict[str, str] = {}  # libraries that the operator approved: name → digest


class GpuFacts(Wire):
    """A GPU, or an instance of one that MIG has split, as NVML tells it. `uuid` tells two of one model apart."""

    uuid: str
    name: str
    compute_capability: str
    memory_bytes: int
    driver: str
    cuda: str
    mig_profile: str | None


class WorkerDevice(Wire):
    """Where one live worker builds; `gpu` null: on processors."""

    worker: str
    host: str
    slots: int
    gpu: GpuFacts | None


class KnownTarget(Wire):
    id: str
    target: Target
    default: bool
    workers: int
    last_seen: Instant
    queue_length: int
    capabilities: Capabilities
    devices: tuple[WorkerDevice, ...] = ()


class Targets(Wire):
    items: tuple[KnownTarget, ...]

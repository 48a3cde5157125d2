"""What crosses the border to a child: one JSON request on stdin, then typed JSON lines on a descriptor of its own.

Plain dataclasses, because the child starts faster without pydantic; the parent validates every line it reads.
"""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class BuildRequest:
    """Build `model` (a name in the child's folder) as `spec` says and write the plan to the name `plan` there."""

    builder: str  # module that is imported: "tensorrt_rtx" or "tensorrt"
    model: str
    plan: str
    profiles: list[dict[str, dict[str, Any]]]  # input → {"min": […], "opt": […], "max": […], "values": false}
    optimization_level: int
    workspace_bytes: int
    compute_capabilities: list[str]  # "8.9"; empty: the device's own
    options: dict[str, Any] = field(default_factory=dict)  # of the full builder, by their name in the build spec
    timing_cache: str | None = None  # its file
    timing_cache_pinned: bool = False  # it is all that may be used, and stays as it is
    plugins: list[dict[str, Any]] = field(default_factory=list)  # as `app.worker.plugins` loads them


@dataclass(frozen=True)
class RefitRequest:
    """Give the weights of `model` to the plan `base` and write it to `plan` (names in the child's folder)."""

    builder: str
    base: str
    model: str
    plan: str
    keeps_refit: bool  # the new plan can be refitted too
    host_code: bool  # the plan brings code for the processor: it is version compatible
    figures: dict[str, Any]  # fields of `Built` that a refit does not change
    plugins: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class InspectRequest:
    model: str
    max_opset: int  # of the default domain; newer is refused
    files: dict[str, int]  # companions of the model in the child's folder: name → bytes
    cpu_s: int  # processor seconds, then the kernel ends the child


@dataclass(frozen=True)
class PreflightRequest:
    """Say what `builder` would object to in `model` with these profiles, without building."""

    builder: str
    model: str
    profiles: list[dict[str, dict[str, Any]]]
    cpu_s: int
    doctor_s: float  # seconds for the shape doctor
    plugins: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class ProbeRequest:
    builder: str


@dataclass(frozen=True)
class LoadRequest:
    """Deserialize the file `plan` and say what the engine is; then run it as often as it takes to measure it."""

    builder: str
    plan: str
    plugins: list[dict[str, Any]]
    host_code: bool  # the plan may bring code of its own, which is run
    contexts: int  # most that run at once; 0: none does
    seconds: float  # of each measurement
    values: dict[str, list[int]]  # of inputs that decide shapes


@dataclass(frozen=True)
class WatchRequest:
    """Say which GPUs NVML shows, then what happens on them, until told to stop."""

    every_s: float  # seconds between samples


# ---- child → parent


@dataclass(frozen=True)
class Stage:
    """The child enters a stage of ours: "parse" or "build" ("prepare" is what comes before the first of these)."""

    stage: str
    type: Literal["stage"] = "stage"


@dataclass(frozen=True)
class PhaseStarted:
    id: int
    parent: int | None
    name: str
    steps: int | None
    at: float  # seconds since the epoch
    type: Literal["phase_started"] = "phase_started"


@dataclass(frozen=True)
class PhaseStep:
    """The latest step of a live phase; at most 10 a second per phase."""

    id: int
    step: int
    type: Literal["phase_step"] = "phase_step"


@dataclass(frozen=True)
class PhaseFinished:
    id: int
    at: float
    elapsed_s: float
    type: Literal["phase_finished"] = "phase_finished"


@dataclass(frozen=True)
class Log:
    """A warning or error of the builder (noise of a machine without a GPU left out); everything else goes to stderr."""

    level: Literal["warning", "error"]
    text: str
    type: Literal["log"] = "log"


@dataclass(frozen=True)
class Built:
    """The plan is written and closed. Byte figures as the builder logged them, None where it said nothing."""

    onnx_parser: str  # version
    layers_by_dtype: dict[str, int]
    weights_bytes: int | None
    activation_bytes: int | None
    scratch_bytes: int | None
    timing_cache: dict[str, Any] | None = None  # as in the manifest
    plugins: list[dict[str, Any]] = field(default_factory=list)  # name, digest, and the creators each has brought
    type: Literal["built"] = "built"


@dataclass(frozen=True)
class Loaded:
    """The engine deserializes; `engine` has the fields of `trtforge.contract.engines.LoadedEngine`."""

    engine: dict[str, Any]
    warnings: list[str]  # what could not be told or measured, and why
    type: Literal["loaded"] = "loaded"


@dataclass(frozen=True)
class Failed:
    """The child's own account. `code` is one of `trtforge.contract.failures`; `native` the first error of the stage."""

    code: str
    message: str
    native: str | None = None
    where: dict[str, Any] = field(default_factory=dict)
    remedy: str | None = None  # where it is better than the code's own
    type: Literal["failed"] = "failed"


@dataclass(frozen=True)
class Stopped:
    """Told to stop, and stopped: `by` says where it was noticed."""

    by: Literal["monitor", "between_stages"]
    type: Literal["stopped"] = "stopped"


@dataclass(frozen=True)
class Inspected:
    """`inspection` has the fields of `trtforge.contract.models.Inspection`."""

    inspection: dict[str, Any]
    type: Literal["inspected"] = "inspected"


@dataclass(frozen=True)
class Examined:
    """What preflight found: problems and warnings have the fields of `trtforge.contract.problem.Trouble`."""

    problems: list[dict[str, Any]]
    warnings: list[dict[str, Any]]
    profiles: list[dict[str, dict[str, Any]]]  # those asked for, with legal extents where some were not
    type: Literal["examined"] = "examined"


@dataclass(frozen=True)
class Refused:
    """The model cannot be one: a code with an HTTP status, and what is wrong, without any path of this machine."""

    code: str
    message: str
    files: list[str] = field(default_factory=list)  # that the model needs and that were not declared
    type: Literal["refused"] = "refused"


@dataclass(frozen=True)
class Probed:
    """What this builder is and can do here."""

    builder: str
    builder_version: str
    onnx_parser: str
    compute_capabilities: list[str]  # all that can be asked for, ascending; empty when the builder has no such choice
    default_optimization_level: int
    max_optimization_level: int
    gpu: str | None
    driver: str | None
    cuda: str | None
    landlock: int  # ABI that shuts in children who read models; 0: the kernel has none, only limits hold them
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # that it was seen to take: fields of `Option`
    type: Literal["probed"] = "probed"


@dataclass(frozen=True)
class Gpu:
    """What NVML says of a GPU, or of an instance of one that MIG has split."""

    uuid: str  # "GPU-…" or "MIG-…"
    name: str  # of the whole GPU
    compute_capability: str  # "9.0"
    memory_bytes: int
    driver: str  # "580.159.04"
    cuda: str  # "13.0": the newest that the driver serves
    mig_profile: str | None  # "1g.10gb"
    index: str  # as nvidia-smi counts: "0"; "0:3" is the instance 3 of it


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU; None where the driver does not say."""

    pid: int
    memory_bytes: int | None
    utilization: int | None  # percent of the last second or so


@dataclass(frozen=True)
class GpuSample:
    uuid: str
    utilization: int | None  # percent of the last second or so, of everybody; MIG has none
    memory_bytes: int | None  # used, of everybody
    processes: list[GpuProcess]
    trouble: str | None  # why nothing is known: the GPU is lost


@dataclass(frozen=True)
class GpusFound:
    gpus: list[Gpu]
    troubles: list[str]  # of those that cannot be used
    type: Literal["gpus_found"] = "gpus_found"


@dataclass(frozen=True)
class GpusSampled:
    samples: list[GpuSample]
    type: Literal["gpus_sampled"] = "gpus_sampled"


@dataclass(frozen=True)
class NoGpu:
    """There is none that can be used, or none is left."""

    reason: str
    type: Literal["no_gpu"] = "no_gpu"


Message = (
    Stage
    | PhaseStarted
    | PhaseStep
    | PhaseFinished
    | Log
    | Built
    | Loaded
    | Failed
    | Stopped
    | Inspected
    | Examined
    | Refused
    | Probed
    | GpusFound
    | GpusSampled
    | NoGpu
)
OUTCOMES = (
    Built,
    Loaded,
    Failed,
    Stopped,
    Inspected,
    Examined,
    Refused,
    Probed,
    NoGpu,
)  # the last message of a child, exactly one

"""Engines: a verified plan and the manifest that explains and repeats it."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from trtforge.contract.base import Digest, Instant, Wire
from trtforge.contract.models import ModelFile, Tensor
from trtforge.contract.spec import BuildSpec, EffectiveSpec
from trtforge.contract.target import GpuFacts, Target


class PlanRef(Wire):
    digest: Digest
    size: int  # bytes


class EngineSummary(Wire):
    engine_key: Digest
    model: Digest
    target: Target
    plan: PlanRef
    created_at: Instant
    last_fetched_at: Instant | None
    pinned: bool


class EnginePage(Wire):
    items: tuple[EngineSummary, ...]
    next_cursor: str | None


class ManifestModel(Wire):
    """`inputs` and `outputs` as the model names them; None in manifests of before they were recorded."""

    digest: Digest
    files: tuple[ModelFile, ...]
    inputs: tuple[Tensor, ...] | None = None
    outputs: tuple[Tensor, ...] | None = None


class ManifestSpec(Wire):
    requested: BuildSpec
    effective: EffectiveSpec


class ManifestBuilder(Wire):
    name: str
    version: str
    onnx_parser: str


class PhaseTiming(Wire):
    """One distinct phase path; a path that ran several times is summed."""

    path: tuple[str, ...]
    count: int
    seconds: float


class Timings(Wire):
    stages: dict[str, float]  # seconds
    phases: tuple[PhaseTiming, ...]


class Memory(Wire):
    """Bytes, as the builder reported them; None where it said nothing."""

    weights_bytes: int | None
    activation_bytes: int | None
    scratch_bytes: int | None


class Precision(Wire):
    requested: str
    achieved: dict[str, int]  # dtype → layers whose first output has it


class DeviceNeighbour(Wire):
    """Another process on the GPU: the most that was seen of it; None where the driver does not say."""

    pid: int
    memory_bytes: int | None
    utilization: int | None  # percent


class ManifestDevice(GpuFacts):
    """The GPU that the build had to itself among builds, and who else was seen on it in `samples` looks."""

    samples: int
    neighbours: tuple[DeviceNeighbour, ...]
    trouble: str | None  # with the GPU or its driver, during the build


class LoadedMemory(Wire):
    """Bytes on the GPU, as the runtime reports them; None where it says nothing."""

    profiles: tuple[int | None, ...]  # of one execution context, by optimization profile
    context_bytes: int | None  # of one execution context in any profile
    weights_bytes: int | None
    streamable_weights_bytes: int | None  # what weight streaming may leave in the host's memory


class Latency(Wire):
    p50: float
    p99: float


class Measurement(Wire):
    """So many execution contexts at once, each with a stream, a thread and buffers of its own.

    Inputs have the optimal shapes of the first profile and are zeros (or its values); nothing is copied to or fro. The
    threads are Python's: where an inference takes some 0.1 ms or less, they wait for one another rather than for the GPU.
    """

    contexts: int
    cuda_graphs: bool
    inferences: int  # of all contexts
    seconds: float
    throughput_per_s: float
    latency_ms: Latency  # of one inference, from its enqueue until its stream is done


class LoadedEngine(Wire):
    """What the engine said when it was deserialized on a GPU that it was made for, right after its build."""

    seconds: float  # that deserializing took
    memory: LoadedMemory
    layers: dict[
        str, str | None
    ]  # of the engine → type of its first output; None: not told at this profiling verbosity
    inspector: Any = None  # all of the engine inspector's JSON; None: too long, or none was given
    measurements: tuple[Measurement, ...] = ()


class ManifestBuild(Wire):
    id: str
    attempts: int
    service_version: str


class Manifest(Wire):
    """The sidecar JSON of a plan, schema 1."""

    model_config = ConfigDict(
        serialize_by_alias=True, validate_by_name=True, json_schema_serialization_defaults_required=True
    )

    schema_version: Literal[1] = Field(default=1, alias="schema")  # `schema` itself is a method of pydantic's
    engine_key: Digest
    key_schema: int
    model: ManifestModel
    target: Target
    spec: ManifestSpec
    plan: PlanRef
    builder: ManifestBuilder
    tools: dict[str, str]
    timings: Timings
    memory: Memory
    precision: Precision
    warnings: tuple[str, ...]
    calibration: dict[str, Any] | None = None
    plugins: tuple[dict[str, Any], ...] = ()
    timing_cache: dict[str, Any] | None = None
    device: ManifestDevice | None = None  # None: built on processors
    loaded: LoadedEngine | None = None  # None: it was not deserialized
    verified: Literal["bytes", "deserialized"]
    build: ManifestBuild
    created_at: Instant

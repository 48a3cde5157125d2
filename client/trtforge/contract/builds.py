"""Builds and requests as clients see them."""

from typing import Any, Literal

from trtforge.contract.base import Asked, Digest, Instant, Wire
from trtforge.contract.engines import EngineSummary, PlanRef
from trtforge.contract.spec import BuildOptions, BuildSpec, EffectiveSpec
from trtforge.contract.target import Target, TargetSelector

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Stage = Literal["prepare", "convert", "parse", "build", "publish"]
WaitingFor = Literal["worker", "device", "engine_lock"]
Disposition = Literal["created", "joined", "cached", "known_failure"]
EndedBy = Literal["before_start", "between_stages", "monitor", "killed", "worker_lost"]
RequestState = Literal["waiting", "served", "failed", "cancelled", "withdrawn"]
Activity = Literal["working", "idle"]

TERMINAL: frozenset[State] = frozenset({"succeeded", "failed", "cancelled"})


class Submit(Asked):
    """Body of `POST /v1/builds`."""

    model: Digest
    target: TargetSelector = TargetSelector()
    spec: BuildSpec = BuildSpec()
    options: BuildOptions = BuildOptions()


class Refit(Asked):
    """Body of `POST /v1/engines/{key}/refit`: the model whose weights the engine is given."""

    model: Digest
    options: BuildOptions = BuildOptions()  # a fallback `{"spec": {}}` builds the model as a whole


class Reason(Asked):
    """Optional body of a DELETE."""

    reason: str | None = None


class SpecPair(Wire):
    requested: BuildSpec
    effective: EffectiveSpec


class LivePhase(Wire):
    id: int
    parent: int | None
    name: str
    step: int | None  # last completed step, None before the first
    steps: int | None  # None: the builder does not know
    elapsed_s: float


class Estimate(Wire):
    total_s: tuple[float, float]
    remaining_s: tuple[float, float]
    basis: str


class Progress(Wire):
    elapsed_s: float
    silent_s: float  # since the builder last said anything
    activity: Activity | None  # None: not sampled yet
    cpu_s: float | None
    rss_bytes: int | None
    gpu_utilization: int | None = None  # percent; None: no GPU is used, or it does not say
    gpu_memory_bytes: int | None = None  # of the builder
    phases: tuple[LivePhase, ...]  # live ones, outermost first
    estimate: Estimate | None = None


class Cancel(Wire):
    requested_at: Instant
    by: str
    reason: str | None
    ended_by: EndedBy | None  # None while the build is still being stopped
    seconds: float | None  # from the request to the end


class Failure(Wire):
    code: str
    message: str
    remedy: str
    stage: Stage | None
    where: dict[str, Any] = {}
    native: str | None = None  # the builder's own first error of the stage that failed
    retryable: bool


class EngineRef(Wire):
    engine_key: Digest
    plan: PlanRef


class Difference(Wire):
    field: str
    have: Any
    asked: Any


class Rebuild(Wire):
    """A build that only compares: `plan` is what was stored when it was asked for.

    `differs`: what is not as it was, the plan's digest first; timings are left out.
    """

    plan: PlanRef
    identical: bool | None = None  # None until it has succeeded
    differs: tuple[Difference, ...] = ()
    first_difference: int | None = None  # offset in bytes; None: identical, or the stored plan is gone


class Build(Wire):
    id: str
    state: State
    stage: Stage | None
    engine_key: Digest
    model: Digest
    target: Target
    spec: SpecPair
    attempt: int
    requests: int  # those that still wait for it
    priority: int
    labels: dict[str, str]
    queue_position: int | None
    waiting_for: WaitingFor | None
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    progress: Progress | None
    cancel: Cancel | None
    failure: Failure | None
    engine: EngineRef | None
    follows: str | None = None  # the failed build whose requests fell back to this one
    followed_by: tuple[str, ...] = ()
    rebuild: Rebuild | None = None  # of a build that makes an engine again, only to compare


class Nearest(Wire):
    engine_key: Digest
    differs: tuple[Difference, ...]


class Submitted(Wire):
    """Answer of `POST /v1/builds`."""

    disposition: Disposition
    request_id: str
    build: Build | None
    engine: EngineSummary | None
    nearest: Nearest | None = None


class Served(Wire):
    """`differs`: where the engine is not what was first asked for."""

    engine_key: Digest
    fallback: bool
    differs: tuple[Difference, ...] = ()


class Request(Wire):
    """One client's wish for an engine."""

    id: str
    state: RequestState
    builds: tuple[str, ...]
    served: Served | None
    failure: Failure | None
    created_at: Instant
    labels: dict[str, str]


class BuildPage(Wire):
    items: tuple[Build, ...]
    next_cursor: str | None

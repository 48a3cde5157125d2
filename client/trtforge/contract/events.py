"""Events of a build: one fact each. Those with a `seq` are stored and replayed; the others are live only."""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from trtforge.contract.base import Instant, Wire
from trtforge.contract.builds import Activity, Build, Cancel, EngineRef, Estimate, Failure, Stage, WaitingFor


class Stored(Wire):
    """`seq` rises by one per build and is the SSE id. It is 0 until the row of the build has given it."""

    seq: int = 0
    at: Instant
    attempt: int = 0


class Queued(Stored):
    type: Literal["queued"] = "queued"


class Joined(Stored):
    type: Literal["joined"] = "joined"
    request_id: str
    requests: int = 0


class Withdrawn(Stored):
    type: Literal["withdrawn"] = "withdrawn"
    request_id: str
    requests: int = 0
    reason: str | None


class Waiting(Stored):
    type: Literal["waiting"] = "waiting"
    waiting_for: WaitingFor


class Started(Stored):
    type: Literal["started"] = "started"
    worker: str


class StageEntered(Stored):
    type: Literal["stage"] = "stage"
    stage: Stage


class Phase(Wire):
    id: int
    parent: int | None
    name: str
    steps: int | None


class PhaseId(Wire):
    id: int


class PhaseStep(Wire):
    id: int
    step: int


class PhaseStarted(Stored):
    type: Literal["phase_started"] = "phase_started"
    phase: Phase


class PhaseFinished(Stored):
    type: Literal["phase_finished"] = "phase_finished"
    phase: PhaseId
    elapsed_s: float


class Log(Stored):
    type: Literal["log"] = "log"
    level: Literal["warning", "error"]
    text: str


class CancelRequested(Stored):
    type: Literal["cancel_requested"] = "cancel_requested"
    by: str
    reason: str | None


class Requeued(Stored):
    type: Literal["requeued"] = "requeued"
    reason: str


class Succeeded(Stored):
    type: Literal["succeeded"] = "succeeded"
    engine: EngineRef


class Failed(Stored):
    type: Literal["failed"] = "failed"
    failure: Failure


class Cancelled(Stored):
    type: Literal["cancelled"] = "cancelled"
    cancel: Cancel


class Snapshot(Wire):
    """First thing on every connection: the build after event `seq`."""

    type: Literal["snapshot"] = "snapshot"
    seq: int
    build: Build


class PhaseProgress(Wire):
    type: Literal["phase_progress"] = "phase_progress"
    phase: PhaseStep


class Heartbeat(Wire):
    type: Literal["heartbeat"] = "heartbeat"
    elapsed_s: float
    silent_s: float
    activity: Activity | None
    cpu_s: float | None
    rss_bytes: int | None
    gpu_utilization: int | None = None
    gpu_memory_bytes: int | None = None
    estimate: Estimate | None = None


class Stalled(Wire):
    """The builder neither speaks nor computes; nobody can say whether it ever will."""

    type: Literal["stalled"] = "stalled"
    silent_s: float


class Draining(Wire):
    type: Literal["draining"] = "draining"
    reconnect_after_s: float


StoredEvent = (
    Queued
    | Joined
    | Withdrawn
    | Waiting
    | Started
    | StageEntered
    | PhaseStarted
    | PhaseFinished
    | Log
    | CancelRequested
    | Requeued
    | Succeeded
    | Failed
    | Cancelled
)
LiveEvent = Snapshot | PhaseProgress | Heartbeat | Stalled | Draining
Event = StoredEvent | LiveEvent

_events: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])


def read_event(raw: str | bytes | dict[str, Any]) -> Event | None:
    """Return the event, or None for a type this version does not know.

    Raises `pydantic.ValidationError` when a known type is malformed.
    """
    try:
        return _events.validate_json(raw) if isinstance(raw, str | bytes) else _events.validate_python(raw)
    except ValidationError as error:
        if any(e["type"] == "union_tag_invalid" for e in error.errors()):
            return None
        raise

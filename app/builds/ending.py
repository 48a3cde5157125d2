"""How builds end. One transaction each: the state, the last event, and the answer to everyone who waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.builds.fallback import fall_back, note_fallbacks
from app.builds.parts import Parts
from app.builds.views import cancel_view, key_of
from app.db import builds, engines, requests
from app.db.builds import BuildRow, Stop
from app.db.session import Tx
from trtforge.contract.builds import Difference, EndedBy, EngineRef, Failure, Stage
from trtforge.contract.engines import Manifest, PlanRef
from trtforge.contract.events import Cancelled, CancelRequested, Failed, Requeued, StoredEvent, Succeeded
from trtforge.contract.failures import CODES

Events = Sequence[StoredEvent]


def failure(
    code: str, message: str | None = None, *, stage: str | None = None, native: str | None = None, **where: Any
) -> Failure:
    """Return a failure as clients see it; meaning, remedy and whether a retry helps come from the one list of codes."""
    known = CODES[code]
    return Failure(
        code=code,
        message=message or known.meaning,
        remedy=known.remedy,
        stage=_stage(stage),
        where=where,
        native=native,
        retryable=known.retryable,
    )


def _stage(stage: str | None) -> Stage | None:
    return stage  # type: ignore[return-value]  # from the row or the child; pydantic checks it


def succeed(tx: Tx, build_id: str, attempt: int, manifest: Manifest, before: Events, at: datetime) -> bool:
    """Index the engine and end the build; `before` are events that come first. False when the attempt lost the build."""
    engine = EngineRef(engine_key=manifest.engine_key, plan=manifest.plan)
    values = {"plan_digest": manifest.plan.digest, "plan_size": manifest.plan.size, "requests": 0}
    events = [*before, Succeeded(at=at, engine=engine)]
    if not builds.settle(tx, build_id, attempt, "succeeded", events, finished_at=at, progress=None, **values):
        return False
    engines.add(tx, manifest)
    requests.end_all(tx, build_id, "served", at, served_key=manifest.engine_key)
    note_fallbacks(tx, build_id, manifest)
    return True


@dataclass(frozen=True)
class Rebuilt:
    """What came of building an engine again."""

    plan: PlanRef
    differs: tuple[Difference, ...]
    first_difference: int | None = None  # offset in bytes


def compared(tx: Tx, build: BuildRow, found: Rebuilt, before: Events, at: datetime) -> bool:
    """End a rebuild: no engine is indexed. False when the attempt lost the build."""
    assert build.rebuild is not None
    key = key_of(build)
    identical = found.plan == PlanRef.model_validate(build.rebuild["plan"])
    differs = [one.model_dump(mode="json") for one in found.differs]
    values = {"plan_digest": found.plan.digest, "plan_size": found.plan.size, "requests": 0}
    told = {"identical": identical, "differs": differs, "first_difference": found.first_difference}
    ended = {"rebuild": {**build.rebuild, **told}, "finished_at": at}
    events = [*before, Succeeded(at=at, engine=EngineRef(engine_key=key, plan=found.plan))]
    if not builds.settle(tx, build.id, build.attempt, "succeeded", events, progress=None, **values, **ended):
        return False
    requests.end_all(tx, build.id, "served", at, served_key=key)
    return True


def fail(tx: Tx, parts: Parts, build: BuildRow, why: Failure, before: Events, at: datetime, **values: Any) -> bool:
    """End a running build as failed; its requests fall back or fail. False when the attempt lost the build."""
    stored = why.model_dump(mode="json")
    events = [*before, Failed(at=at, failure=why)]
    ended = {"finished_at": at, "progress": None, "requests": 0, "failure": stored, **values}
    if not builds.settle(tx, build.id, build.attempt, "failed", events, **ended):
        return False
    for request in requests.waiting_on(tx, build.id):
        fall_back(tx, parts, request, build, why, at)
    return True


CLOCKS_AGREE = 1.0  # seconds that another process's flag may take to be seen; more, and the wall clock has jumped


def end_stopped(
    tx: Tx,
    parts: Parts,
    build: BuildRow,
    ended_by: EndedBy,
    before: Events,
    at: datetime,
    heard_s: float | None = None,
) -> bool:
    """End a running build that was asked to stop: cancelled, or failed when time ran out. False when it was lost.

    `heard_s`: seconds since the worker heard of it, on a clock that never jumps; None when no worker did.
    """
    assert build.stop is not None
    assert build.stop_at is not None
    seconds = max(0.0, (at - build.stop_at).total_seconds())
    if heard_s is not None and abs(seconds - heard_s) > CLOCKS_AGREE:
        seconds = heard_s
    seconds = round(seconds, 3)
    if build.stop != "cancel":
        why = failure(build.stop, stage=build.stage)
        return fail(tx, parts, build, why, before, at, ended_by=ended_by, stop_seconds=seconds)
    cancel = cancel_view(build)
    assert cancel is not None
    last = Cancelled(at=at, cancel=cancel.model_copy(update={"ended_by": ended_by, "seconds": seconds}))
    values = {"ended_by": ended_by, "stop_seconds": seconds, "finished_at": at, "progress": None, "requests": 0}
    if not builds.settle(tx, build.id, build.attempt, "cancelled", [*before, last], **values):
        return False
    requests.end_all(tx, build.id, "cancelled", at)
    return True


def give_back(tx: Tx, build: BuildRow, reason: str, losses: int, before: Events, at: datetime) -> bool:
    """Return a running build that is held to the queue, for another attempt. False when the attempt lost it already.

    One that was asked to stop must end instead: nobody takes it from the queue.
    """
    assert build.stop is None
    values = {"losses": losses, "worker": None, "lease_until": None, "started_at": None, "waiting_for": "worker"}
    events = [*before, Requeued(at=at, reason=reason)]
    if not builds.settle(tx, build.id, build.attempt, "queued", events, progress=None, **values):
        return False
    requests.set_deadlines(tx, build.id, "queue_timeout_s", at)
    return True


def stop_queued(tx: Tx, build_id: str, stop: Stop) -> bool:
    """End a build that has not started. False when it has: flag it instead."""
    row = builds.find(tx, build_id)
    if row is None or row.state != "queued":
        return False
    values: dict[str, Any] = {
        "stop": stop.kind,
        "stop_at": stop.at,
        "stop_by": stop.by,
        "stop_reason": stop.reason,
        "ended_by": "before_start",
        "stop_seconds": 0.0,
        "finished_at": stop.at,
        "requests": 0,
        "waiting_for": None,
    }
    if stop.kind != "cancel":
        why = failure(stop.kind)
        values["failure"] = why.model_dump(mode="json")
        if not builds.settle_queued(tx, build_id, "failed", [Failed(at=stop.at, failure=why)], **values):
            return False
        requests.end_all(tx, build_id, "failed", stop.at, failure=values["failure"])
        return True
    return _cancel_queued(tx, row, stop, values)


def _cancel_queued(tx: Tx, row: BuildRow, stop: Stop, values: dict[str, Any]) -> bool:
    asked = CancelRequested(at=stop.at, by=stop.by, reason=stop.reason)
    after = BuildRow(**{**row.__dict__, **values})
    cancel = cancel_view(after)
    assert cancel is not None
    if not builds.settle_queued(tx, row.id, "cancelled", [asked, Cancelled(at=stop.at, cancel=cancel)], **values):
        return False
    requests.end_all(tx, row.id, "cancelled", stop.at)
    return True

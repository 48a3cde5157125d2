"""Rows and live progress → what clients see."""

from app.builds.parts import Parts
from app.db import builds, requests
from app.db.builds import BuildRow
from app.db.requests import RequestRow
from app.db.session import Tx
from trtforge.contract.builds import Build, Cancel, EngineRef, Failure, Progress, Rebuild, Request, Served, SpecPair
from trtforge.contract.engines import PlanRef


def build_view(tx: Tx, parts: Parts, row: BuildRow) -> Build:
    """Return a build as of `row`, with the progress of this process or, failing that, as last stored by another."""
    return Build(
        id=row.id,
        state=row.state,
        stage=row.stage,
        engine_key=key_of(row),
        model=row.model,
        target=row.target,
        spec=SpecPair(requested=row.spec_requested, effective=row.spec_effective),
        attempt=row.attempt,
        requests=row.requests,
        priority=row.priority,
        labels=row.labels,
        queue_position=builds.queue_position(tx, row),
        waiting_for=row.waiting_for,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        progress=_progress(parts, row),
        cancel=cancel_view(row),
        failure=Failure.model_validate(row.failure) if row.failure else None,
        engine=_engine(row),
        follows=row.follows,
        followed_by=builds.followers(tx, row),
        rebuild=Rebuild.model_validate(row.rebuild) if row.rebuild else None,
    )


def key_of(row: BuildRow) -> str:
    """Return the key of the engine a build is about; a rebuild's row has one of its own."""
    return str(row.rebuild["engine_key"]) if row.rebuild else row.engine_key


def _progress(parts: Parts, row: BuildRow) -> Progress | None:
    if row.state != "running":
        return None
    if live := parts.live.get(row.id):
        return live.progress()
    return Progress.model_validate(row.progress) if row.progress else None


def cancel_view(row: BuildRow) -> Cancel | None:
    if row.stop != "cancel" or row.stop_at is None:
        return None
    return Cancel(
        requested_at=row.stop_at,
        by=row.stop_by or "",
        reason=row.stop_reason,
        ended_by=row.ended_by,
        seconds=row.stop_seconds,
    )


def _engine(row: BuildRow) -> EngineRef | None:
    if row.plan_digest is None or row.plan_size is None:
        return None
    return EngineRef(engine_key=key_of(row), plan=PlanRef(digest=row.plan_digest, size=row.plan_size))


def request_view(row: RequestRow) -> Request:
    return Request(
        id=row.id,
        state=row.state,
        builds=tuple(row.builds),
        served=_served(row),
        failure=Failure.model_validate(row.failure) if row.failure else None,
        created_at=row.created_at,
        labels=row.options.get("labels", {}),
    )


def _served(row: RequestRow) -> Served | None:
    if row.served_key is None:
        return None
    return Served(engine_key=row.served_key, fallback=row.differs is not None, differs=row.differs or ())


def find_build(parts: Parts, build_id: str) -> Build | None:
    """Return a build, or None."""
    with parts.database.read() as tx:
        row = builds.find(tx, build_id)
        return build_view(tx, parts, row) if row else None


def find_request(parts: Parts, request_id: str) -> Request | None:
    with parts.database.read() as tx:
        row = requests.find(tx, request_id)
        return request_view(row) if row else None

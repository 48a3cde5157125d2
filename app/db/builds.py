"""Builds: decide a submit, move between states, and look. Every change goes through `advance`, which records why."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Executable, Select, and_, bindparam, case, func, or_, select, tuple_

from app.db.events import advance
from app.db.session import Tx, insert_for, note
from app.db.tables import build_labels, builds
from app.domain.key import rebuild_key
from app.domain.states import LIVE, allowed
from trtforge.contract.builds import State, WaitingFor
from trtforge.contract.events import Queued, Started, StoredEvent, Waiting

_live = builds.c.state.in_(sorted(LIVE))
_joinable = and_(_live, builds.c.stop.is_(None))


@dataclass(frozen=True)
class BuildRow:
    id: str
    engine_key: str
    model: str
    target_id: str
    target: dict[str, Any]
    spec_requested: dict[str, Any]
    spec_effective: dict[str, Any]
    state: State
    stage: str | None
    attempt: int
    losses: int
    last_seq: int
    requests: int
    priority: int
    labels: dict[str, str]
    waiting_for: str | None
    worker: str | None
    lease_until: datetime | None
    progress: dict[str, Any] | None
    stop: str | None
    stop_at: datetime | None
    stop_by: str | None
    stop_reason: str | None
    ended_by: str | None
    stop_seconds: float | None
    failure: dict[str, Any] | None
    plan_digest: str | None
    plan_size: int | None
    rebuild: dict[str, Any] | None
    follows: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True)
class Moved:
    """Noted when a build's state was written, for `Database.committed`."""

    to: State
    failure: Any
    ended_by: Any
    stop_seconds: Any


_columns = [builds.c[f.name] for f in fields(BuildRow)]


def _read(row: Sequence[Any]) -> BuildRow:
    return BuildRow(*row)


# ---- looking

# What every submit asks is made once: to make a statement takes more than twice what running it does.
_FIND = select(*_columns).where(builds.c.id == bindparam("build"))
_LIVE = select(*_columns).where(builds.c.engine_key == bindparam("key"), _joinable)


def find(tx: Tx, build_id: str) -> BuildRow | None:
    row = tx.execute(_FIND, {"build": build_id}).one_or_none()
    return _read(row) if row else None


def hold(tx: Tx, build_id: str) -> BuildRow | None:
    """Return a build that nobody else changes until this transaction ends: what is decided from here on stays true.

    Whoever changes requests holds their build first, so two transactions never wait for each other in a circle.
    """
    query = select(*_columns).where(builds.c.id == build_id).with_for_update(key_share=True)
    row = tx.execute(query).one_or_none()  # on SQLite the transaction holds everything
    return _read(row) if row else None


def keys_of(tx: Tx, build_ids: Sequence[str]) -> set[str]:
    return set(tx.execute(select(builds.c.engine_key).where(builds.c.id.in_(build_ids))).scalars())


def live(tx: Tx, engine_key: str) -> BuildRow | None:
    """Return the build a submit for this key would join."""
    row = tx.execute(_LIVE, {"key": engine_key}).one_or_none()
    return _read(row) if row else None


_OUTCOMES = (
    select(*_columns)
    .where(builds.c.engine_key == bindparam("key"), builds.c.state.in_(("succeeded", "failed")))
    .order_by(builds.c.created_at.desc(), builds.c.id.desc())
    .limit(bindparam("most"))
)


def last_outcomes(tx: Tx, engine_key: str, limit: int) -> list[BuildRow]:
    """Return the newest ended builds of a key, cancelled ones left out: they say nothing about the key."""
    return [_read(r) for r in tx.execute(_OUTCOMES, {"key": engine_key, "most": limit})]


def followers(tx: Tx, build: BuildRow) -> tuple[str, ...]:
    """Return the builds that requests fell back to when this one failed, oldest first."""
    if build.state != "failed":
        return ()
    rows = tx.execute(select(builds.c.id).where(builds.c.follows == build.id).order_by(builds.c.created_at))
    return tuple(r.id for r in rows)


_older = tuple_(builds.c.created_at, builds.c.id) < tuple_(
    bindparam("at", type_=builds.c.created_at.type), bindparam("build")
)
_AHEAD = select(func.count()).where(
    builds.c.state == "queued",
    builds.c.target_id == bindparam("target"),
    or_(
        builds.c.priority > bindparam("of_priority"), and_(builds.c.priority == bindparam("of_priority"), _older)
    ),  # as a worker takes them: higher priority first, then older
)


def queue_position(tx: Tx, build: BuildRow) -> int | None:
    """Return how many queued builds of the same target come first; None once it runs."""
    if build.state != "queued":
        return None
    its = {"target": build.target_id, "of_priority": build.priority, "at": build.created_at, "build": build.id}
    return tx.execute(_AHEAD, its).scalar_one()


def queue(tx: Tx, target_id: str, limit: int) -> list[BuildRow]:
    """Return the builds a worker of this target may try, best first."""
    rows = tx.execute(
        select(*_columns)
        .where(builds.c.state == "queued", builds.c.stop.is_(None), builds.c.target_id == target_id)
        .order_by(builds.c.priority.desc(), builds.c.created_at, builds.c.id)
        .limit(limit)
    )
    return [_read(r) for r in rows]


_QUEUED = select(func.count()).where(builds.c.state == "queued", builds.c.stop.is_(None))


def queued(tx: Tx) -> int:
    """Count the builds that wait for a worker, of every target."""
    return tx.execute(_QUEUED).scalar_one()


def running(tx: Tx) -> list[BuildRow]:
    rows = tx.execute(select(*_columns).where(builds.c.state == "running"))
    return [_read(r) for r in rows]


@dataclass(frozen=True)
class BuildFilter:
    state: str | None = None
    model: str | None = None
    engine_key: str | None = None
    label: tuple[str, str] | None = None


def page(tx: Tx, wanted: BuildFilter, limit: int, before: tuple[datetime, str] | None) -> list[BuildRow]:
    """Return builds newest first, those before the cursor (created_at, id)."""
    query: Select[Any] = select(*_columns)
    newest = (builds.c.created_at, builds.c.id)
    if wanted.label:  # walk along the index of labels, which has the order too
        name, value = wanted.label
        query = query.join(build_labels, build_labels.c.build_id == builds.c.id)
        query = query.where(build_labels.c.name == name, build_labels.c.value == value)
        newest = (build_labels.c.created_at, build_labels.c.build_id)
    for field in ("state", "model", "engine_key"):
        if value := getattr(wanted, field):
            shown = (value, rebuild_key(value)) if field == "engine_key" else (value,)  # as the views show it
            query = query.where(builds.c[field].in_(shown))
    if before:
        query = query.where(tuple_(*newest) < before)
    return [_read(r) for r in tx.execute(query.order_by(*(column.desc() for column in newest)).limit(limit))]


def last_seq(tx: Tx, build_id: str) -> int | None:
    return tx.execute(select(builds.c.last_seq).where(builds.c.id == build_id)).scalar_one_or_none()


def stops_asked(tx: Tx, worker: str) -> set[str]:
    """Return the builds this worker runs that were asked to stop."""
    rows = tx.execute(
        select(builds.c.id).where(builds.c.worker == worker, builds.c.state == "running", builds.c.stop.is_not(None))
    )
    return {r.id for r in rows}


# ---- changing


@cache
def _creating(dialect: str) -> Executable:
    return insert_for(dialect, builds).on_conflict_do_nothing().returning(builds.c.id)


def create(tx: Tx, build: BuildRow, at: datetime) -> bool:
    """Queue a new build with its first event; False when another live build of the key came first."""
    made = tx.execute(_creating(tx.dialect.name), {f.name: getattr(build, f.name) for f in fields(BuildRow)})
    if made.one_or_none() is None:
        return False
    if build.labels:
        rows = [
            {"build_id": build.id, "name": name, "value": value, "created_at": build.created_at}
            for name, value in build.labels.items()
        ]
        tx.execute(build_labels.insert(), rows)
    advance(tx, build.id, [Queued(at=at)])
    return True


def join(tx: Tx, build_id: str, event: StoredEvent, priority: int) -> bool:
    """Count one more request, with its priority; False when the build ended or is being stopped: look again."""
    highest = case((builds.c.priority < priority, priority), else_=builds.c.priority)
    joined = advance(tx, build_id, [event], _joinable, requests=builds.c.requests + 1, priority=highest)
    return joined is not None


def leave(tx: Tx, build_id: str, event: StoredEvent, priority: int) -> bool:
    """Count one request less of a build that is held; `priority` is the highest of those that stay. False: it ended."""
    left = advance(tx, build_id, [event], _live, requests=builds.c.requests - 1, priority=priority)
    return left is not None


@dataclass(frozen=True)
class Stop:
    """Asked of a build: a flag, never a state."""

    kind: str  # cancel | run_timeout | queue_timeout
    at: datetime
    by: str
    reason: str | None


def ask_stop(tx: Tx, build_id: str, stop: Stop, events: Sequence[StoredEvent]) -> bool:
    """Flag a running build; False when it ended, is being stopped already, or is past its point of no return."""
    values = {"stop": stop.kind, "stop_at": stop.at, "stop_by": stop.by, "stop_reason": stop.reason}
    past_no_return = builds.c.stage.is_not_distinct_from("publish")
    flagged = advance(
        tx, build_id, events, builds.c.state == "running", builds.c.stop.is_(None), ~past_no_return, **values
    )
    return flagged is not None


def wait(tx: Tx, build_id: str, waiting_for: WaitingFor, at: datetime) -> bool:
    """Note what a queued build waits for; no event when it is the same as before."""
    changed = advance(
        tx,
        build_id,
        [Waiting(at=at, waiting_for=waiting_for)],
        builds.c.state == "queued",
        builds.c.waiting_for.is_distinct_from(waiting_for),
        waiting_for=waiting_for,
    )
    return changed is not None


def claim(tx: Tx, build_id: str, worker: str, at: datetime, lease_until: datetime) -> BuildRow | None:
    """Take a queued build for a new attempt; None when it is no longer there to take."""
    claimed = _move(
        tx,
        build_id,
        ("queued",),
        "running",
        [Started(at=at, worker=worker)],
        builds.c.stop.is_(None),
        attempt=builds.c.attempt + 1,
        worker=worker,
        lease_until=lease_until,
        started_at=at,
        waiting_for=None,
        progress=None,
    )
    return find(tx, build_id) if claimed else None


def _owned(attempt: int) -> ColumnElement[bool]:
    """The fence: an attempt that outlived its lease matches no row, so it can change nothing."""
    return and_(builds.c.state == "running", builds.c.attempt == attempt)


def append(
    tx: Tx, build_id: str, attempt: int, events: Sequence[StoredEvent], **values: object
) -> list[StoredEvent] | None:
    """Record what an attempt did; None when the attempt lost the build."""
    return advance(tx, build_id, events, _owned(attempt), **values)


def enter_publish(tx: Tx, build_id: str, attempt: int, events: Sequence[StoredEvent]) -> list[StoredEvent] | None:
    """The point of no return: from here no stop is taken. None when a stop was asked first, or the attempt lost it."""
    return advance(tx, build_id, events, _owned(attempt), builds.c.stop.is_(None), stage="publish")


def settle(
    tx: Tx, build_id: str, attempt: int, to: State, events: Sequence[StoredEvent], **values: object
) -> list[StoredEvent] | None:
    """End a running build, or give it back to the queue; None when the attempt lost it."""
    return _move(tx, build_id, ("running",), to, events, builds.c.attempt == attempt, **values)


def settle_queued(tx: Tx, build_id: str, to: State, events: Sequence[StoredEvent], **values: object) -> bool:
    """End a build before it started: only a stop does that."""
    return _move(tx, build_id, ("queued",), to, events, builds.c.stop.is_(None), **values) is not None


def _move(
    tx: Tx,
    build_id: str,
    from_: Sequence[State],
    to: State,
    events: Sequence[StoredEvent],
    *conditions: ColumnElement[bool],
    **values: object,
) -> list[StoredEvent] | None:
    """The one place that writes `state`."""
    for state in from_:
        assert allowed(state, to), (state, to)
    moved = advance(tx, build_id, events, builds.c.state.in_(from_), *conditions, state=to, stage=None, **values)
    if moved is not None:
        note(tx, Moved(to, values.get("failure"), values.get("ended_by"), values.get("stop_seconds")))
    return moved


def renew(tx: Tx, build_id: str, attempt: int, lease_until: datetime, progress: dict[str, Any] | None) -> bool:
    """Prove that the attempt lives; its progress rides along for other processes. False when it lost the build."""
    return append(tx, build_id, attempt, [], lease_until=lease_until, progress=progress) is not None

"""Events of builds. Their number comes from the build's own row, in the transaction that changes the build."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, insert, select, update

from app.db.session import Tx
from app.db.tables import build_events, builds
from trtforge.contract.events import PhaseFinished, PhaseStarted, StoredEvent, read_event


@dataclass(frozen=True)
class StoredBody:
    seq: int
    type: str
    body: str


_INSERT = insert(build_events)


def advance(
    tx: Tx, build_id: str, events: Sequence[StoredEvent], *conditions: ColumnElement[bool], **values: object
) -> list[StoredEvent] | None:
    """Change a build and record why, or do neither.

    The one UPDATE takes the numbers of `events` from the row and carries the `conditions`; join, withdraw, finish and
    progress all serialise on it. Returns the events with `seq` (and `attempt`, `requests` where they have one) filled
    in, or None when no row met the conditions: look again and decide again.
    """
    row = tx.execute(
        update(builds)
        .where(builds.c.id == build_id, *conditions)
        .values(last_seq=builds.c.last_seq + len(events), **values)
        .returning(builds.c.last_seq, builds.c.attempt, builds.c.requests)
    ).one_or_none()
    if row is None:
        return None
    first = row.last_seq - len(events) + 1
    numbered = [_numbered(e, first + i, row.attempt, row.requests) for i, e in enumerate(events)]
    if numbered:
        tx.execute(
            _INSERT,
            [{"build_id": build_id, "seq": e.seq, "type": e.type, "body": e.model_dump_json()} for e in numbered],
        )
    return numbered


def _numbered(event: StoredEvent, seq: int, attempt: int, requests: int) -> StoredEvent:
    known: dict[str, int] = {"seq": seq, "attempt": attempt}
    if "requests" in type(event).model_fields:
        known["requests"] = requests
    return event.model_copy(update=known)


def events_after(tx: Tx, build_id: str, seq: int) -> Iterator[StoredBody]:
    """Return the events that follow `seq`, in order."""
    rows = tx.execute(
        select(build_events.c.seq, build_events.c.type, build_events.c.body)
        .where(build_events.c.build_id == build_id, build_events.c.seq > seq)
        .order_by(build_events.c.seq)
    )
    for row in rows:
        yield StoredBody(row.seq, row.type, row.body)


def open_phases(tx: Tx, build_id: str, attempt: int) -> list[int]:
    """Return the phases of an attempt that have no end yet, innermost first."""
    rows = tx.execute(
        select(build_events.c.type, build_events.c.body)
        .where(build_events.c.build_id == build_id, build_events.c.type.in_(("phase_started", "phase_finished")))
        .order_by(build_events.c.seq)
    )
    opened: dict[int, None] = {}
    for row in rows:
        event = read_event(row.body)
        if isinstance(event, PhaseStarted) and event.attempt == attempt:
            opened[event.phase.id] = None
        elif isinstance(event, PhaseFinished) and event.attempt == attempt:
            opened.pop(event.phase.id, None)
    return list(reversed(opened))

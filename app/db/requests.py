"""Requests: one client's wish each. They wait on a build, and end with it or by leaving it."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from app.db.session import Tx, insert_or
from app.db.tables import idempotency_keys, requests
from trtforge.contract.builds import RequestState


@dataclass(frozen=True)
class RequestRow:
    id: str
    caller: str
    state: RequestState
    disposition: str
    build_id: str | None
    builds: list[str]
    options: dict[str, Any]
    step: int
    deadline: datetime | None
    served_key: str | None
    differs: list[dict[str, Any]] | None
    failure: dict[str, Any] | None
    reason: str | None
    created_at: datetime
    ended_at: datetime | None


_columns = [requests.c[f.name] for f in fields(RequestRow)]


_ADD = insert(requests)  # made once, as every submit asks it
_FIND = select(*_columns).where(requests.c.id == bindparam("request"))


def add(tx: Tx, request: RequestRow) -> None:
    tx.execute(_ADD, {f.name: getattr(request, f.name) for f in fields(RequestRow)})


def find(tx: Tx, request_id: str) -> RequestRow | None:
    row = tx.execute(_FIND, {"request": request_id}).one_or_none()
    return RequestRow(*row) if row else None


def waiting_on(tx: Tx, build_id: str) -> list[RequestRow]:
    query = select(*_columns).where(requests.c.build_id == build_id, requests.c.state == "waiting")
    return [RequestRow(*r) for r in tx.execute(query.order_by(requests.c.created_at, requests.c.id))]


def end(tx: Tx, request_id: str, to: RequestState, at: datetime, **values: object) -> bool:
    """End one waiting request; False when it has ended already."""
    ended = tx.execute(
        update(requests)
        .where(requests.c.id == request_id, requests.c.state == "waiting")
        .values(state=to, ended_at=at, deadline=None, **values)
    )
    return ended.rowcount == 1


def end_all(tx: Tx, build_id: str, to: RequestState, at: datetime, **values: object) -> None:
    """Answer everyone who waits for a build."""
    tx.execute(
        update(requests)
        .where(requests.c.build_id == build_id, requests.c.state == "waiting")
        .values(state=to, ended_at=at, deadline=None, **values)
    )


def move(tx: Tx, request: RequestRow, build_id: str, step: int, deadline: datetime) -> bool:
    """Let a waiting request wait on another build, after `step` of its fallbacks; False when it has ended."""
    moved = tx.execute(
        update(requests)
        .where(requests.c.id == request.id, requests.c.state == "waiting")
        .values(build_id=build_id, builds=[*request.builds, build_id], step=step, deadline=deadline)
    )
    return moved.rowcount == 1


def that_fell_back_to(tx: Tx, build_id: str) -> list[RequestRow]:
    query = select(*_columns).where(requests.c.build_id == build_id, requests.c.state == "served", requests.c.step > 0)
    return [RequestRow(*r) for r in tx.execute(query)]


def set_differs(tx: Tx, request_id: str, differs: list[dict[str, Any]]) -> None:
    tx.execute(update(requests).where(requests.c.id == request_id).values(differs=differs))


def set_deadlines(tx: Tx, build_id: str, option: str, since: datetime) -> None:
    """Let the time of everyone who waits for a build run from `since`: `option` says which of their timeouts."""
    for request in waiting_on(tx, build_id):
        deadline = since + timedelta(seconds=request.options[option])
        tx.execute(update(requests).where(requests.c.id == request.id).values(deadline=deadline))


def overdue(tx: Tx, now: datetime, limit: int) -> list[RequestRow]:
    query = select(*_columns).where(requests.c.state == "waiting", requests.c.deadline < now)
    return [RequestRow(*r) for r in tx.execute(query.order_by(requests.c.deadline).limit(limit))]


def waiting_of(tx: Tx, caller: str) -> int:
    query = select(func.count()).where(requests.c.caller == caller, requests.c.state == "waiting")
    return tx.execute(query).scalar_one()


def count(tx: Tx) -> int:
    return tx.execute(select(func.count()).select_from(requests)).scalar_one()


@dataclass(frozen=True)
class Replay:
    body_digest: str
    request_id: str


def replay(tx: Tx, caller: str, key: str, since: datetime) -> Replay | None:
    """Return what this Idempotency-Key stood for, if it came since then."""
    row = tx.execute(
        select(idempotency_keys.c.body_digest, idempotency_keys.c.request_id).where(
            idempotency_keys.c.caller == caller, idempotency_keys.c.key == key, idempotency_keys.c.created_at >= since
        )
    ).one_or_none()
    return Replay(row.body_digest, row.request_id) if row else None


def remember(tx: Tx, caller: str, key: str, body_digest: str, request_id: str, at: datetime, since: datetime) -> bool:
    """Keep an Idempotency-Key, and forget those from before `since`; False when it is kept already."""
    tx.execute(delete(idempotency_keys).where(idempotency_keys.c.created_at < since))
    values = {"caller": caller, "key": key, "body_digest": body_digest, "request_id": request_id, "created_at": at}
    statement = insert_or(tx, idempotency_keys).values(**values).on_conflict_do_nothing()
    return tx.execute(statement.returning(idempotency_keys.c.key)).one_or_none() is not None

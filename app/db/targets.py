"""Known targets and the workers that build for them."""

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from app.db.session import Tx, insert_or
from app.db.tables import builds, targets, workers
from trtforge.contract.target import Capabilities, KnownTarget, Target, WorkerDevice


@dataclass(frozen=True)
class WorkerRow:
    id: str
    owner: str
    target_id: str
    gpu: dict[str, Any] | None
    host: str
    pid: int
    slots: int


def see_target(tx: Tx, new_id: str, fingerprint: str, target: Target, capabilities: Capabilities, at: datetime) -> str:
    """Record that a worker with this target lives, and return the target's id (`new_id` when it is new)."""
    fresh = {"capabilities": capabilities.model_dump(mode="json"), "last_seen": at}
    statement = (
        insert_or(tx, targets)
        .values(id=new_id, fingerprint=fingerprint, target=target.model_dump(mode="json"), **fresh)
        .on_conflict_do_update(index_elements=["fingerprint"], set_=fresh)
        .returning(targets.c.id)
    )
    return str(tx.execute(statement).scalar_one())


def add_worker(tx: Tx, worker: WorkerRow, at: datetime) -> None:
    tx.execute(insert(workers).values(**asdict(worker), started_at=at, last_seen=at))


def see_worker(tx: Tx, worker_id: str, at: datetime) -> None:
    """Prove that a worker lives; its target is seen with it."""
    tx.execute(update(workers).where(workers.c.id == worker_id).values(last_seen=at))
    of = select(workers.c.target_id).where(workers.c.id == worker_id).scalar_subquery()
    tx.execute(update(targets).where(targets.c.id == of).values(last_seen=at))


def remove_workers(tx: Tx, owners: list[str]) -> None:
    """Take the workers of processes off the list."""
    tx.execute(delete(workers).where(workers.c.owner.in_(owners)))


def workers_known(tx: Tx) -> list[WorkerRow]:
    query = select(*(workers.c[f.name] for f in fields(WorkerRow)))
    return [WorkerRow(*row) for row in tx.execute(query)]


def capabilities(tx: Tx, target_id: str) -> Capabilities:
    found = tx.execute(select(targets.c.capabilities).where(targets.c.id == target_id)).scalar_one()
    return Capabilities.model_validate(found)


# What every submit asks is made once.
_alive = (
    select(workers.c.target_id, func.count().label("n"))
    .where(workers.c.last_seen >= bindparam("since"))
    .group_by(workers.c.target_id)
    .subquery()
)
_waiting = (
    select(builds.c.target_id, func.count().label("n"))
    .where(builds.c.state == "queued")
    .group_by(builds.c.target_id)
    .subquery()
)
_KNOWN = (
    select(targets, func.coalesce(_alive.c.n, 0).label("workers"), func.coalesce(_waiting.c.n, 0).label("queued"))
    .outerjoin(_alive, _alive.c.target_id == targets.c.id)
    .outerjoin(_waiting, _waiting.c.target_id == targets.c.id)
    .order_by(func.coalesce(_alive.c.n, 0).desc(), targets.c.last_seen.desc(), targets.c.id)
)
_WORKERS = select(workers).where(workers.c.last_seen >= bindparam("since")).order_by(workers.c.id)


def known(tx: Tx, alive_since: datetime) -> list[KnownTarget]:
    """Return the targets ever seen, best first; workers count while they were seen since `alive_since`."""
    rows = tx.execute(_KNOWN, {"since": alive_since}).all()
    on: dict[str, list[WorkerDevice]] = {}
    for worker in tx.execute(_WORKERS, {"since": alive_since}):
        shown = WorkerDevice(worker=worker.id, host=worker.host, slots=worker.slots, gpu=worker.gpu)
        on.setdefault(worker.target_id, []).append(shown)
    return [
        KnownTarget(
            id=r.id,
            target=r.target,
            default=i == 0,
            workers=r.workers,
            last_seen=r.last_seen,
            queue_length=r.queued,
            capabilities=r.capabilities,
            devices=tuple(on.get(r.id, ())),
        )
        for i, r in enumerate(rows)
    ]

"""Take back what dead workers left: every running build whose attempt can no longer speak ends or is queued again."""

import socket

import structlog

from app.builds import ending
from app.builds.bus import QUEUE
from app.builds.ending import failure
from app.builds.parts import Parts
from app.builds.publish import whole_engine
from app.db import builds, events, targets
from app.db.builds import BuildRow
from app.db.targets import WorkerRow
from app.domain.states import MAX_LOSSES
from app.errors import Busy, NotReady, StoreFull, StoreUnusable
from app.worker.locks import read_holder, try_lock
from trtforge.contract.engines import Manifest
from trtforge.contract.events import PhaseFinished, PhaseId, StoredEvent

log = structlog.get_logger()


def recover(parts: Parts) -> int:
    """Look at every running build; return how many were taken back. Raises `Busy`."""
    with parts.database.read() as tx:
        running = builds.running(tx)
        workers = {w.id: w for w in targets.workers_known(tx)}  # after the builds: who claims is known before
    taken = sum(_take_back(parts, build) for build in running if _lost(parts, build, workers))
    if taken:
        parts.bus.notify(QUEUE)
    return taken


def _lost(parts: Parts, build: BuildRow, workers: dict[str, WorkerRow]) -> bool:
    """A worker that signed off is gone, one of this host when its lock is free, any other when its lease has run out."""
    worker = workers.get(build.worker or "")
    if worker is None:
        return True
    if worker.host == socket.gethostname() and not parts.store.owner_alive(worker.owner):
        return True
    return build.lease_until is not None and build.lease_until < parts.now()


def _take_back(parts: Parts, build: BuildRow) -> bool:
    """One that cannot be taken now (its row or its lock is held, the store is away) waits for the next look."""
    try:
        return _taken(parts, build)
    except (Busy, StoreFull, StoreUnusable, NotReady, OSError) as error:
        log.warning("build_not_taken_back", build=build.id, reason=str(error))
        return False


def _taken(parts: Parts, build: BuildRow) -> bool:
    if build.stop:  # asked to stop and nobody there to do it; the fence keeps a late worker from publishing
        return _end(parts, build, None)
    path = parts.store.key_lock(build.engine_key)
    lock = try_lock(path, {"build": build.id, "attempt": build.attempt, "recovery": True})
    if lock is None:
        holder = read_holder(path) or {}
        if (holder.get("build"), holder.get("attempt")) == (build.id, build.attempt):
            return False  # that very attempt is still there, only slow: it may yet renew its lease
        return _end(parts, build, None)
    with lock:
        return _end(parts, build, whole_engine(parts, build.engine_key))


def _end(parts: Parts, build: BuildRow, engine: Manifest | None) -> bool:
    at = parts.now()
    with parts.database.write() as tx:
        now = builds.hold(tx, build.id)
        if now is None or (now.state, now.attempt, now.lease_until) != ("running", build.attempt, build.lease_until):
            return False  # it ended, or its owner spoke again
        build = now
        before: list[StoredEvent] = [
            PhaseFinished(at=at, phase=PhaseId(id=phase), elapsed_s=0.0)
            for phase in events.open_phases(tx, build.id, build.attempt)
        ]
        if build.stop:
            done = ending.end_stopped(tx, parts, build, "worker_lost", before, at)
        elif engine:
            done = ending.succeed(tx, build.id, build.attempt, engine, before, at)
        elif build.losses + 1 >= MAX_LOSSES:
            why = failure("worker_lost", stage=build.stage)
            done = ending.fail(tx, parts, build, why, before, at, losses=build.losses + 1)
        else:
            done = ending.give_back(tx, build, "the worker was lost", build.losses + 1, before, at)
    if done:
        log.warning("build_taken_back", build=build.id, attempt=build.attempt, worker=build.worker)
        parts.bus.notify(build.id)
    return done

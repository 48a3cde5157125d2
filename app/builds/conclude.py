"""Write how a running build goes on: each of these is one transaction, and raises `LeaseLost` when it is another's."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from app.builds import ending
from app.builds.ending import Rebuilt
from app.builds.history import learn
from app.builds.parts import Parts, in_thread
from app.db import builds
from app.db.builds import BuildRow
from app.db.session import Tx
from app.domain.estimate import Past
from app.errors import Busy, LeaseLost
from trtforge.contract.builds import EndedBy, Failure
from trtforge.contract.engines import Manifest
from trtforge.contract.events import StageEntered, StoredEvent

TRY_AGAIN = 1.0  # seconds between tries at a busy database

T = TypeVar("T")


async def persistently(parts: Parts, work: Callable[[], T]) -> T:
    """Do it as often as it takes within the lease: a busy database must not lose a finished build."""
    give_up = monotonic() + parts.settings.lease_s
    while True:
        try:
            return await in_thread(work)
        except Busy as error:
            if monotonic() > give_up:
                raise LeaseLost from error
            await asyncio.sleep(TRY_AGAIN)


class Conclusion:
    """Speaks for one attempt. `closing` gives the events that end what the builder left open."""

    def __init__(self, parts: Parts, row: BuildRow) -> None:
        self._parts, self._row = parts, row
        self.closing: Callable[[], Sequence[StoredEvent]] = list
        self.heard_s: Callable[[], float | None] = lambda: None  # seconds since the attempt was asked to stop

    def enter_publish(self) -> bool:
        """Pass the point of no return; False when a stop was asked first."""
        event = StageEntered(at=self._parts.now(), stage="publish")
        with self._parts.database.write() as tx:
            entered = builds.enter_publish(tx, self._row.id, self._row.attempt, [event])
            if not entered:
                self._still_ours(tx)
        self._parts.bus.notify(self._row.id)
        return entered is not None

    def succeed(self, manifest: Manifest, past: Past | None = None) -> None:
        """`past`: what the build took, when it was really built."""
        at = self._parts.now()
        with self._parts.database.write() as tx:
            _ours(ending.succeed(tx, self._row.id, self._row.attempt, manifest, self.closing(), at))
            if past:
                learn(tx, self._row, past, at)

    def compared(self, found: Rebuilt, past: Past) -> None:
        """End a rebuild."""
        at = self._parts.now()
        with self._parts.database.write() as tx:
            _ours(ending.compared(tx, self._row, found, self.closing(), at))
            learn(tx, self._row, past, at)

    def fail(self, why: Failure) -> None:
        with self._parts.database.write() as tx:
            _ours(ending.fail(tx, self._parts, self._row, why, self.closing(), self._parts.now()))

    def halt(self, ended_by: EndedBy) -> None:
        """End a build that was asked to stop, or give it back when only this worker was."""
        before, at = self.closing(), self._parts.now()
        with self._parts.database.write() as tx:
            now = self._still_ours(tx)
            if now.stop:
                _ours(ending.end_stopped(tx, self._parts, now, ended_by, before, at, self.heard_s()))
            else:
                _ours(ending.give_back(tx, now, "the worker is shutting down", now.losses, before, at))

    def _still_ours(self, tx: Tx) -> BuildRow:
        now = builds.hold(tx, self._row.id)
        if now is None or now.state != "running" or now.attempt != self._row.attempt:
            raise LeaseLost
        return now


def _ours(written: bool) -> None:
    if not written:
        raise LeaseLost

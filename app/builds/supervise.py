"""The supervisor: owns the builds of this machine. A slot claims one, runs its attempt, and concludes it."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import TypeVar

import structlog

from app.builds import ending, stopping
from app.builds.attempt import MODEL, PLAN, Attempt, Broke, Finished, Halted
from app.builds.bus import QUEUE, woken
from app.builds.ending import failure
from app.builds.live import LiveBuild
from app.builds.native_log import NativeLog
from app.builds.parts import Parts, in_thread
from app.builds.publish import make_manifest, publish, stubbornly, whole_engine
from app.builds.recover import recover
from app.db import builds, models, requests, targets
from app.db.builds import BuildRow
from app.errors import Busy, LeaseLost, PlanRejected, StoreFull, StoreUnusable
from app.worker.locks import Lock, try_lock
from app.worker.messages import BuildRequest
from trtforge.contract.builds import Failure, WaitingFor
from trtforge.contract.engines import Manifest, PlanRef
from trtforge.contract.events import StageEntered

LOOK_AGAIN = 1.0  # seconds between looks at the queue when nothing wakes the slot
STOPS_EVERY = 0.5  # seconds between looks for stops that another process recorded
CANDIDATES = 16  # builds a slot tries per look, so that one whose key is locked does not block the rest

T = TypeVar("T")
log = structlog.get_logger()


@dataclass(frozen=True)
class Claimed:
    """A build, and the locks that stay held until it is concluded."""

    row: BuildRow
    locks: tuple[Lock, Lock]

    def release(self) -> None:
        for lock in self.locks:
            lock.release()


class Supervisor:
    """Runs until it is drained. `worker` is an id that no process used before."""

    def __init__(self, parts: Parts, worker: str, target_id: str) -> None:
        self._parts, self._worker, self._target_id = parts, worker, target_id
        self._picking = threading.Lock()  # two slots of ours must not take each other's try for another process's
        self._attempts: dict[str, Attempt] = {}
        self._draining = False
        self._loops: list[asyncio.Task[None]] = []
        self._slots: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._loops = [asyncio.create_task(self._watch_stops()), asyncio.create_task(self._housekeep())]
        self._slots = [asyncio.create_task(self._slot(n)) for n in range(self._parts.settings.slots)]

    @property
    def broken(self) -> str | None:
        """Why it no longer works; None while it does."""
        for loop in (*self._loops, *self._slots):
            if loop.done() and not loop.cancelled() and not self._draining:
                return f"{type(loop.exception()).__name__} in the supervisor"
        return None

    async def drain(self) -> None:
        """Take no more builds; give those that run `drain_s` to end, then stop them and return them to the queue."""
        self._draining = True
        self._parts.bus.notify(QUEUE)
        if self._slots:
            await asyncio.wait(self._slots, timeout=self._parts.settings.drain_s)
        for attempt in self._attempts.values():
            attempt.stop()
        await asyncio.gather(*self._slots, return_exceptions=True)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    # ---- picking

    async def _slot(self, number: int) -> None:
        with self._parts.bus.listen(QUEUE) as wake:
            while not self._draining:
                wake.clear()
                claimed = None
                try:
                    claimed = await in_thread(lambda: self._pick(number))
                except (Busy, StoreFull, StoreUnusable, OSError) as error:
                    log.warning("queue_unreadable", reason=str(error))
                if claimed:
                    await self._run(claimed)
                else:
                    await woken(wake, LOOK_AGAIN)

    def _pick(self, slot: int) -> Claimed | None:
        """Take the best build whose locks are free, never waiting for one; note what the others wait for."""
        with self._picking:
            with self._parts.database.read() as tx:
                candidates = builds.queue(tx, self._target_id, CANDIDATES)
            for build in candidates:
                if self._draining:
                    return None
                holder = {"build": build.id, "attempt": build.attempt + 1}
                device = try_lock(self._parts.settings.lock_dir / f"cpu-{slot}.lock", holder)
                if device is None:
                    self._note(build, "device")
                    return None
                key = try_lock(self._parts.store.key_lock(build.engine_key), holder)
                if key is None:
                    device.release()
                    self._note(build, "engine_lock")
                    continue
                if row := self._claim(build):
                    return Claimed(row, (key, device))
                key.release()
                device.release()
        return None

    def _note(self, build: BuildRow, waiting_for: WaitingFor) -> None:
        with self._parts.database.write() as tx:
            changed = builds.wait(tx, build.id, waiting_for, self._parts.now())
        if changed:
            self._parts.bus.notify(build.id)

    def _claim(self, build: BuildRow) -> BuildRow | None:
        at = self._parts.now()
        until = at + timedelta(seconds=self._parts.settings.lease_s)
        with self._parts.database.write() as tx:
            row = builds.claim(tx, build.id, self._worker, at, until)
            if row is None:
                return None
            builds.append(tx, row.id, row.attempt, [StageEntered(at=at, stage="prepare")], stage="prepare")
            for request in requests.waiting_on(tx, row.id):
                limit = timedelta(seconds=request.options["run_timeout_s"])
                requests.set_deadline(tx, request.id, at + limit)
            claimed = builds.find(tx, row.id)
        self._parts.bus.notify(build.id)
        return claimed

    # ---- running

    async def _run(self, claimed: Claimed) -> None:
        row, live = claimed.row, LiveBuild(self._parts.now)
        self._parts.live.add(row.id, live)
        words = structlog.contextvars.bound_contextvars(build=row.id, engine_key=row.engine_key, attempt=row.attempt)
        began = monotonic()
        try:
            with words:
                try:
                    await self._attempt(row, live)
                except LeaseLost:
                    log.warning("lease_lost")
                except Exception as error:
                    log.exception("attempt_failed")
                    why = failure("internal_error", f"The supervisor failed: {type(error).__name__}.", stage=row.stage)
                    with suppress(LeaseLost, Busy):
                        await self._conclude(lambda: self._fail(row, why, None))
                log.info("attempt_ended", seconds=round(monotonic() - began, 3))
        finally:
            self._parts.live.remove(row.id)
            self._attempts.pop(row.id, None)
            await in_thread(claimed.release)
            self._parts.bus.notify(row.id)
            self._parts.bus.notify(QUEUE)

    async def _attempt(self, row: BuildRow, live: LiveBuild) -> None:
        log.info("attempt_started")
        if there := await in_thread(lambda: whole_engine(self._parts, row.engine_key)):
            await self._conclude(lambda: self._enter_publish(row))
            await self._conclude(lambda: self._succeed(row, there, None))
            return
        try:
            folder, words = await in_thread(lambda: self._prepare(row))
        except (StoreFull, StoreUnusable, FileNotFoundError) as error:
            why = failure("publish_failed", f"The store cannot take a build: {error}", stage="prepare")
            await self._conclude(lambda: self._fail(row, why, None))
            return
        attempt = Attempt(self._parts, row, live, folder, words)
        self._attempts[row.id] = attempt
        try:
            await self._end(row, attempt, await attempt.run(_request(row)), folder)
        finally:
            await in_thread(lambda: self._parts.store.discard(folder))

    def _prepare(self, row: BuildRow) -> tuple[Path, NativeLog]:
        store, settings = self._parts.store, self._parts.settings
        store.probe()  # before the work, not after it
        folder = store.scratch(row.id)
        store.link_model(row.model, folder / MODEL)
        folders = (folder, settings.data_dir.resolve(), settings.data_dir)
        return folder, NativeLog(store, row.id, row.attempt, folders, settings.max_log_bytes)

    async def _end(self, row: BuildRow, attempt: Attempt, outcome: object, folder: Path) -> None:
        match outcome:
            case Finished(built):
                if await self._conclude(lambda: self._enter_publish(row)):
                    attempt.enter_publish()
                    await self._publish(row, attempt, built, folder)
                else:  # a stop came first
                    await self._conclude(lambda: self._stopped(row, attempt, "between_stages"))
            case Broke(why):
                await self._conclude(lambda: self._fail(row, why, attempt))
            case Halted(ended_by):
                await self._conclude(lambda: self._stopped(row, attempt, ended_by))

    async def _publish(self, row: BuildRow, attempt: Attempt, built: object, folder: Path) -> None:
        def work() -> None:
            with self._parts.database.read() as tx:
                model = models.find(tx, row.model)
            assert model is not None

            def manifest_for(plan: PlanRef) -> Manifest:
                return make_manifest(row, model, built, plan, attempt.timings(), attempt.warnings, self._parts)  # type: ignore[arg-type]

            publish(self._parts, folder / PLAN, manifest_for, lambda m: self._succeed(row, m, attempt))

        try:
            await in_thread(lambda: stubbornly(work))
        except (StoreFull, StoreUnusable, PlanRejected) as error:
            why = failure("publish_failed", f"The plan could not be stored: {error}", stage="publish")
            await self._conclude(lambda: self._fail(row, why, attempt))

    # ---- concluding: each of these is one transaction, and raises `LeaseLost` when the build is another's

    async def _conclude(self, work: Callable[[], T]) -> T:
        """Write an end, as often as it takes within the lease: a busy database must not lose a finished build."""
        give_up = monotonic() + self._parts.settings.lease_s
        while True:
            try:
                return await in_thread(work)
            except Busy:
                if monotonic() > give_up:
                    raise LeaseLost from None
                await asyncio.sleep(LOOK_AGAIN)

    def _enter_publish(self, row: BuildRow) -> bool:
        event = StageEntered(at=self._parts.now(), stage="publish")
        with self._parts.database.write() as tx:
            entered = builds.enter_publish(tx, row.id, row.attempt, [event])
            now = builds.find(tx, row.id)
        if not entered and (now is None or now.state != "running" or now.attempt != row.attempt):
            raise LeaseLost
        self._parts.bus.notify(row.id)
        return entered is not None

    def _succeed(self, row: BuildRow, manifest: Manifest, attempt: Attempt | None) -> None:
        before = attempt.closing() if attempt else []
        with self._parts.database.write() as tx:
            if not ending.succeed(tx, row.id, row.attempt, manifest, before, self._parts.now()):
                raise LeaseLost

    def _fail(self, row: BuildRow, why: Failure, attempt: Attempt | None) -> None:
        before = attempt.closing() if attempt else []
        with self._parts.database.write() as tx:
            if not ending.fail(tx, row.id, row.attempt, why, before, self._parts.now()):
                raise LeaseLost

    def _stopped(self, row: BuildRow, attempt: Attempt, ended_by: object) -> None:
        before, at = attempt.closing(), self._parts.now()
        with self._parts.database.write() as tx:
            now = builds.find(tx, row.id)
            if now is None or now.state != "running" or now.attempt != row.attempt:
                raise LeaseLost
            if now.stop:
                ended = ending.end_stopped(tx, now, ended_by, before, at)  # type: ignore[arg-type]
            else:  # nobody asked for a stop: we are draining
                ended = ending.give_back(tx, now, "the worker is shutting down", now.losses, before, at)
            if not ended:
                raise LeaseLost

    # ---- beside the builds

    async def _watch_stops(self) -> None:
        with self._parts.bus.listen(QUEUE) as wake:
            while True:
                await woken(wake, STOPS_EVERY)
                if not self._attempts:
                    continue
                with suppress(Busy):
                    for build_id in await in_thread(self._stops_asked):
                        if attempt := self._attempts.get(build_id):
                            attempt.stop()

    def _stops_asked(self) -> set[str]:
        with self._parts.database.read() as tx:
            return builds.stops_asked(tx, self._worker)

    async def _housekeep(self) -> None:
        """Show that we live, let requests time out, and take back what dead workers left."""
        seen = 0.0
        while True:
            with suppress(Busy, StoreFull, StoreUnusable, OSError):
                if monotonic() - seen > self._parts.settings.lease_s / 3:
                    await in_thread(self._see)
                    seen = monotonic()
                await in_thread(self._tend)
            await asyncio.sleep(LOOK_AGAIN)

    def _see(self) -> None:
        with self._parts.database.write() as tx:
            targets.see_worker(tx, self._worker, self._parts.now())

    def _tend(self) -> None:
        stopping.time_out(self._parts)
        recover(self._parts)


def _request(row: BuildRow) -> BuildRequest:
    spec, target = row.spec_effective, row.target
    return BuildRequest(
        builder=target["builder"],
        model=MODEL,
        plan=PLAN,
        profiles=spec["profiles"],
        optimization_level=spec["optimization_level"],
        workspace_bytes=spec["workspace_bytes"],
        compute_capabilities=target["compute_capabilities"] if target["gpu"] is None else [],
    )

"""The supervisor: owns the builds of this machine. A slot claims one, runs its attempt, and concludes it."""

import asyncio
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import structlog

from app.builds import stopping
from app.builds.attempt import UNKILLABLE, Attempt, Broke, Finished, Halted, Outcome
from app.builds.bus import QUEUE, woken
from app.builds.claim import Claimed, Claims
from app.builds.conclude import Conclusion, persistently
from app.builds.ending import failure
from app.builds.layout import PLAN
from app.builds.live import LiveBuild
from app.builds.loading import Unloaded, load
from app.builds.parts import Parts, in_thread
from app.builds.prepare import Unprepared, prepare
from app.builds.publish import make_manifest, publish, whole_engine
from app.builds.rebuild import compare_again
from app.builds.recover import recover
from app.db import builds, models, targets
from app.db.builds import BuildRow
from app.errors import Busy, LeaseLost, PlanRejected, StoreFull, StoreUnusable
from app.worker.devices import Device, processors
from app.worker.messages import Built
from app.worker.process import Exit
from trtforge.contract.builds import Failure
from trtforge.contract.engines import LoadedEngine, Manifest, PlanRef

LOOK_AGAIN = 1.0  # seconds between looks at the queue when nothing wakes the slot
STOPS_EVERY = 0.5  # seconds between looks for stops that another process recorded

log = structlog.get_logger()


class Supervisor:
    """Runs until it is drained. `worker` is an id that no process used before.

    `device` is where it builds, by default the processors. Of several in one process one `tends` the queue: it lets
    requests time out and takes back what dead workers left. A child that lives on `unkillable_after` seconds after SIGKILL keeps its slot and its locks; its build ends.
    """

    def __init__(
        self,
        parts: Parts,
        worker: str,
        target_id: str,
        unkillable_after: float = UNKILLABLE,
        device: Device | None = None,
        tends: bool = True,
    ) -> None:
        self._parts, self._worker, self._unkillable_after = parts, worker, unkillable_after
        self._device, self._tends = device or processors(parts.settings.slots), tends
        self._claims = Claims(parts, worker, target_id, self._device)
        self._attempts: dict[str, Attempt] = {}
        self._leftovers: dict[str, asyncio.Future[Exit]] = {}  # children that cannot be killed, by build
        self._draining = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._slots: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._loops = [asyncio.create_task(self._watch_stops()), asyncio.create_task(self._housekeep())]
        self._slots = [asyncio.create_task(self._slot()) for _ in range(self._device.slots)]

    @property
    def broken(self) -> str | None:
        """Why it no longer works; None while it does."""
        for loop in (*self._loops, *self._slots):
            if loop.done() and not loop.cancelled() and not self._draining.is_set():
                return f"{type(loop.exception()).__name__} in the supervisor"
        if len(self._leftovers) >= self._device.slots:
            return f"builders that cannot be killed hold every device (builds {', '.join(self._leftovers)})"
        return None

    @property
    def waits(self) -> str | None:
        """Why it takes no builds for now: its GPU is in trouble."""
        return self._device.trouble

    async def drain(self) -> None:
        """Take no more builds; give those that run `drain_s` to end, then stop them and return them to the queue."""
        self._draining.set()
        self._parts.bus.notify(QUEUE)
        if self._slots:
            await asyncio.wait(self._slots, timeout=self._parts.settings.drain_s)
        for attempt in self._attempts.values():
            attempt.stop()
        if self._slots:
            await asyncio.wait(self._slots, timeout=self._parts.settings.cancel_grace_s + 3 * self._unkillable_after)
        for loop in (*self._loops, *self._slots):
            loop.cancel()
        await asyncio.gather(*self._loops, *self._slots, return_exceptions=True)

    # ---- running

    async def _slot(self) -> None:
        with self._parts.bus.listen(QUEUE) as wake:
            while not self._draining.is_set():
                wake.clear()
                claimed = None
                try:
                    claimed = await in_thread(lambda: self._claims.pick(self._draining.is_set))
                except (Busy, StoreFull, StoreUnusable, OSError) as error:
                    log.warning("queue_unreadable", reason=str(error))
                if claimed:
                    await self._run(claimed)
                else:
                    await woken(wake, LOOK_AGAIN)

    async def _run(self, claimed: Claimed) -> None:
        row, live, began = claimed.row, LiveBuild(self._parts.now), monotonic()
        self._parts.live.add(row.id, live)
        try:
            with structlog.contextvars.bound_contextvars(build=row.id, engine_key=row.engine_key, attempt=row.attempt):
                log.info("attempt_started")
                await self._to_an_end(row, live)
                log.info("attempt_ended", seconds=round(monotonic() - began, 3))
        finally:
            self._parts.live.remove(row.id)
            self._parts.bus.notify(row.id)
            if await self._is_free(row.id):
                await in_thread(claimed.release)
            self._parts.bus.notify(QUEUE)

    async def _is_free(self, build_id: str) -> bool:
        """Wait for a child that cannot be killed: it may still use the device, which nobody else gets until it is gone.

        False when the service ends first: its locks go with it.
        """
        leftover = self._leftovers.get(build_id)
        if leftover is None:
            return True
        draining = asyncio.create_task(self._draining.wait())
        first: set[asyncio.Future[Any]] = {leftover, draining}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        if not leftover.done():
            return False
        del self._leftovers[build_id]
        return True

    async def _to_an_end(self, row: BuildRow, live: LiveBuild) -> None:
        """Whatever happens, the slot lives on and the build does not stay as it is."""
        conclusion = Conclusion(self._parts, row)
        try:
            await self._engine(row, live, conclusion)
        except LeaseLost:
            log.warning("lease_lost")
        except Exception as error:
            log.exception("attempt_failed")
            why = failure("internal_error", f"The supervisor failed: {type(error).__name__}.", stage=row.stage)
            with suppress(LeaseLost):
                await persistently(self._parts, lambda: conclusion.fail(why))

    async def _engine(self, row: BuildRow, live: LiveBuild, conclusion: Conclusion) -> None:
        if there := await in_thread(lambda: whole_engine(self._parts, row.engine_key)):
            await self._adopt(there, conclusion)
            return
        if busy := await self._refusal():
            refusal = busy
            await persistently(self._parts, lambda: conclusion.fail(refusal))
            return
        try:
            ready = await in_thread(lambda: prepare(self._parts, row))
        except Unprepared as unprepared:
            bad = unprepared.failure
            await persistently(self._parts, lambda: conclusion.fail(bad))
            return
        folder, live.history = ready.folder, ready.history
        attempt = Attempt(self._parts, row, live, folder, ready.words, self._unkillable_after, self._device)
        conclusion.closing, conclusion.heard_s = attempt.closing, attempt.heard_s
        self._attempts[row.id] = attempt
        try:
            await self._end(row, attempt, conclusion, await attempt.run(ready.request), folder, ready.request.plugins)
        finally:
            self._attempts.pop(row.id, None)
            if attempt.leftover:
                self._leftovers[row.id] = attempt.leftover
            await in_thread(lambda: self._parts.store.discard(folder))

    async def _refusal(self) -> Failure | None:
        """Why the GPU is too busy, where such builds are to be refused. The lock is ours, so a builder is no stranger."""
        watch = self._device.watch
        if watch is None or self._parts.settings.require_idle_gpu != "refuse":
            return None
        await watch.next_sample()  # the last one may show the build before
        strangers = self._device.strangers()
        if strangers is None:
            return failure(
                "gpu_busy", "Nobody knows who else computes on the GPU: its driver is silent.", stage="prepare"
            )
        if not strangers:
            return None
        pids = [process.pid for process in strangers]
        return failure("gpu_busy", f"{len(pids)} other processes compute on the GPU.", stage="prepare", pids=pids)

    async def _adopt(self, there: Manifest, conclusion: Conclusion) -> None:
        """Succeed with an engine that a process without our rows has built, unless a stop was asked first."""
        if await persistently(self._parts, conclusion.enter_publish):
            await persistently(self._parts, lambda: conclusion.succeed(there))
        else:
            await persistently(self._parts, lambda: conclusion.halt("between_stages"))

    async def _end(
        self,
        row: BuildRow,
        attempt: Attempt,
        conclusion: Conclusion,
        outcome: Outcome,
        folder: Path,
        plugins: list[dict[str, Any]],
    ) -> None:
        match outcome:
            case Finished(built):
                try:
                    loaded = await load(self._parts, row, attempt, self._device, plugins, folder)
                except Unloaded as unloaded:
                    await self._unloaded(conclusion, unloaded.failure)
                    return
                if await persistently(self._parts, conclusion.enter_publish):
                    attempt.enter_publish()
                    await self._publish(row, attempt, conclusion, built, folder / PLAN, loaded)
                else:
                    await persistently(self._parts, lambda: conclusion.halt("between_stages"))
            case Broke(why):
                await persistently(self._parts, lambda: conclusion.fail(why))
            case Halted(ended_by):
                await persistently(self._parts, lambda: conclusion.halt(ended_by))

    async def _unloaded(self, conclusion: Conclusion, why: Failure | None) -> None:
        if why:
            await persistently(self._parts, lambda: conclusion.fail(why))
        else:
            await persistently(self._parts, lambda: conclusion.halt("between_stages"))

    async def _publish(
        self,
        row: BuildRow,
        attempt: Attempt,
        conclusion: Conclusion,
        built: Built,
        staged: Path,
        loaded: LoadedEngine | None,
    ) -> None:
        def work() -> Manifest:
            with self._parts.database.read() as tx:
                model = models.find(tx, row.model)
            assert model is not None  # a build refers to it

            def manifest_for(plan: PlanRef) -> Manifest:
                said, use = [*attempt.warnings, *attempt.use.warnings()], attempt.use.account()
                return make_manifest(row, model, built, plan, attempt.timings(), said, self._parts.now(), use, loaded)

            return publish(self._parts, staged, manifest_for)

        if row.rebuild:
            await self._compare(row, attempt, conclusion, built, staged)
            return
        try:
            kept = await persistently(self._parts, work)
        except (StoreFull, StoreUnusable, PlanRejected) as error:
            why = failure("publish_failed", f"The plan could not be stored: {error}", stage="publish")
            await persistently(self._parts, lambda: conclusion.fail(why))
        else:
            past = attempt.past()
            await persistently(self._parts, lambda: conclusion.succeed(kept, past))  # step 3 of publish
            self._parts.metrics.built(kept.timings.stages)

    async def _compare(
        self, row: BuildRow, attempt: Attempt, conclusion: Conclusion, built: Built, staged: Path
    ) -> None:
        """End a rebuild with what differs; nothing of it is kept."""
        try:
            found = await persistently(self._parts, lambda: compare_again(self._parts, row, built, staged))
        except (StoreFull, StoreUnusable, PlanRejected) as error:
            why = failure("publish_failed", f"The plan could not be read: {error}", stage="publish")
            await persistently(self._parts, lambda: conclusion.fail(why))
        else:
            past = attempt.past()
            await persistently(self._parts, lambda: conclusion.compared(found, past))

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
        if self._tends:
            stopping.time_out(self._parts)
        for build_id in list(self._attempts):
            if (live := self._parts.live.get(build_id)) and live.idle_s >= LOOK_AGAIN:
                stopping.stall(self._parts, build_id, live.idle_s)
        if self._tends:
            recover(self._parts)

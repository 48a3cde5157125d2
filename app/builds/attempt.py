"""One attempt: a child talks, its words become events; it is told to stop, killed when it does not, and always reaped."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import structlog

from app.builds.device_use import DeviceUse
from app.builds.ending import failure
from app.builds.live import LiveBuild
from app.builds.native_log import NativeLog
from app.builds.parts import Parts, in_thread
from app.db import builds
from app.db.builds import BuildRow
from app.domain.estimate import Past
from app.domain.timings import Timing
from app.errors import Busy, LeaseLost
from app.worker import messages as said
from app.worker.devices import Device, processors
from app.worker.process import Child, Exit, ProtocolBroken
from trtforge.contract import events as ev
from trtforge.contract.builds import EndedBy, Failure
from trtforge.contract.engines import Timings

TURN = 0.1  # seconds between looks: events reach watchers at most this late
SAMPLE_EVERY = 1.0  # seconds between samples of the child's CPU and memory
LAST_WORDS = 5.0  # seconds a child may take to exit after its last message
UNKILLABLE = 5.0  # seconds after SIGKILL when a child counts as one that cannot be killed
MOST_EVENTS = 100_000  # of one attempt; a builder that says more is out of control
MOST_WARNINGS = 50  # kept in the manifest

log = structlog.get_logger()


@dataclass(frozen=True)
class Finished:
    """The child wrote a plan; it still has to be published."""

    built: said.Built


@dataclass(frozen=True)
class Broke:
    failure: Failure


@dataclass(frozen=True)
class Halted:
    """It was asked to stop, and this ended it."""

    ended_by: EndedBy


Outcome = Finished | Broke | Halted


class Attempt:
    """Runs the child of one claimed build to exactly one outcome. Lives on the event loop."""

    def __init__(
        self,
        parts: Parts,
        build: BuildRow,
        live: LiveBuild,
        folder: Path,
        on_output: NativeLog,
        unkillable_after: float = UNKILLABLE,
        device: Device | None = None,
    ) -> None:
        self._device = device or processors(parts.settings.slots)
        self.use = DeviceUse(self._device)
        self._unkillable_after = unkillable_after
        self.leftover: asyncio.Future[Exit] | None = None  # of a child that SIGKILL did not end
        self._parts, self._build, self._live, self._folder, self.output = parts, build, live, folder, on_output
        self._pending: list[ev.StoredEvent] = []
        self._steps: dict[int, int] = {}
        self._timing = Timing(monotonic())
        self._told_at: float | None = None
        self._killed_at: float | None = None
        self._last: said.Message | None = None
        self._counted = 0
        self._stage = "prepare"
        self._sampled = 0.0
        self._renewed = monotonic()
        self._wake = asyncio.Event()
        self.warnings: list[str] = []  # for the manifest

    def stop(self) -> None:
        """Ask the child to stop; it is killed when the grace is over. Asked again, nothing changes."""
        if self._told_at is None:
            self._told_at = monotonic()
        self._wake.set()

    @property
    def stopping(self) -> bool:
        return self._told_at is not None

    def heard_s(self) -> float | None:
        return None if self._told_at is None else monotonic() - self._told_at

    async def run(self, request: said.BuildRequest | said.RefitRequest) -> Outcome:
        """Return how the attempt ended; by then the child is gone. Raises `LeaseLost`."""
        more = self._device.environment
        child = await Child.spawn(request, self._folder, self.output.write, more=more)
        listening = asyncio.create_task(self._listen(child))
        try:
            while not listening.done() and not self._outlived_its_kill():
                await self._turn(child)
                await self.pause(listening)
            if listening.done():
                await self._until_exit(child)
        finally:
            listening.cancel()
            child.kill()
            exit_ = await self.gone(child)
            self.output.finish()
        await self.flush_last()
        return self._outcome(exit_, _broken(listening))

    # ---- what it says

    async def _listen(self, child: Child) -> None:
        async for message in child.messages():
            self.hear(message)
            self._counted += 1
            if self._counted > MOST_EVENTS:
                raise ProtocolBroken(f"more than {MOST_EVENTS} messages")

    def hear(self, message: said.Message) -> None:
        """Take in what the builder says, or what is said in its stead."""
        self._live.heard()
        now = self._parts.now()
        match message:
            case said.Stage(stage=stage) if stage in ("parse", "build"):
                self._stage = stage
                self._timing.enter(stage, monotonic())
                self._pending.append(ev.StageEntered(at=now, stage=stage))
            case said.PhaseStarted():
                self._timing.opened(message.id, message.parent, message.name)
                phase = ev.Phase(id=message.id, parent=message.parent, name=message.name, steps=message.steps)
                self._pending.append(ev.PhaseStarted(at=_instant(message.at, now), phase=phase))
            case said.PhaseFinished():
                self._timing.closed(message.id, message.elapsed_s)
                closed, seconds = ev.PhaseId(id=message.id), round(message.elapsed_s, 6)
                self._pending.append(ev.PhaseFinished(at=_instant(message.at, now), phase=closed, elapsed_s=seconds))
            case said.PhaseStep():
                self._steps[message.id] = message.step
            case said.Log() if self._told_at is not None:
                pass  # the builder's complaints about being stopped are no news
            case said.Log():
                self._pending.append(ev.Log(at=now, level=message.level, text=message.text))
                if message.level == "warning" and len(self.warnings) < MOST_WARNINGS:
                    self.warnings.append(message.text)
            case said.Built() | said.Failed() | said.Stopped():
                self._last = message
            case _:
                raise ProtocolBroken(f"a builder does not say {message.type!r}")

    # ---- what is done about it

    async def pause(self, listening: "asyncio.Task[Any]") -> None:
        """Wait for the end of a turn, for the end of `listening`, or for a stop."""
        woken = asyncio.create_task(self._wake.wait())
        await asyncio.wait({listening, woken}, timeout=TURN, return_when=asyncio.FIRST_COMPLETED)
        woken.cancel()
        self._wake.clear()

    async def _turn(self, child: Child) -> None:
        now = monotonic()
        if self._told_at is not None:
            child.stop()
            if now - self._told_at > self._parts.settings.cancel_grace_s and self._killed_at is None:
                self._killed_at = now
                child.kill()
        await self.tend(child)

    async def tend(self, child: Child) -> None:
        """Look at the child, tell what was said, and keep the lease. Call it every `TURN`. Raises `LeaseLost`."""
        now = monotonic()
        if now - self._sampled >= SAMPLE_EVERY:
            self._sampled = now
            if usage := child.usage():
                self._live.sample(usage.cpu_s, usage.rss_bytes, self.use.look(child.pids))
        try:
            await self._flush()
            await self._renew(now)
        except Busy as error:
            log.warning("database_busy", build=self._build.id, reason=str(error))
            if now - self._renewed > self._parts.settings.lease_s:
                raise LeaseLost from error

    async def _flush(self) -> None:
        """Store what was said since the last time, then let watchers see it and the steps that came with it."""
        batch, self._pending = self._pending, []
        steps, self._steps = self._steps, {}
        try:
            if batch:
                await self._store(batch)
            if self.output.waiting:
                await in_thread(self.output.flush)
        except Busy:
            self._pending, self._steps = [*batch, *self._pending], {**steps, **self._steps}
            raise
        for phase, step in steps.items():
            self._live.fold(ev.PhaseProgress(phase=ev.PhaseStep(id=phase, step=step)))
        if batch or steps:
            self._parts.bus.notify(self._build.id)

    async def flush_last(self) -> None:
        """Store the last words: the child is gone, and what it made waits for a busy database as long as the lease."""
        while True:
            try:
                return await self._flush()
            except Busy as error:
                if monotonic() - self._renewed > self._parts.settings.lease_s:
                    raise LeaseLost from error
                await asyncio.sleep(TURN)

    async def _store(self, batch: list[ev.StoredEvent]) -> None:
        stages = [e.stage for e in batch if isinstance(e, ev.StageEntered)]
        values = {"stage": stages[-1]} if stages else {}

        def write() -> list[ev.StoredEvent] | None:
            with self._parts.database.write() as tx:
                return builds.append(tx, self._build.id, self._build.attempt, batch, **values)

        stored = await in_thread(write)
        if stored is None:
            raise LeaseLost
        for event in stored:
            self._live.fold(event)

    async def _renew(self, now: float) -> None:
        lease = self._parts.settings.lease_s
        if now - self._renewed < lease / 3:
            return
        until = self._parts.now() + timedelta(seconds=lease)
        progress = self._live.progress().model_dump(mode="json")

        def write() -> bool:
            with self._parts.database.write() as tx:
                return builds.renew(tx, self._build.id, self._build.attempt, until, progress)

        if not await in_thread(write):
            raise LeaseLost
        self._renewed = now

    def _outlived_its_kill(self) -> bool:
        """Until it is gone it keeps its descriptors open, so waiting for the last word would be waiting for ever."""
        return self._killed_at is not None and monotonic() - self._killed_at > self._unkillable_after

    async def _until_exit(self, child: Child) -> None:
        """It has said its last word; one that stays all the same is killed."""
        try:
            await asyncio.wait_for(asyncio.shield(child.wait()), LAST_WORDS)
        except TimeoutError:
            child.kill()

    async def gone(self, child: Child) -> Exit:
        """A killed child is gone at once, unless the kernel holds it (a driver, a dead disk): then we go on without it."""
        waiting = asyncio.ensure_future(child.wait())
        done, _ = await asyncio.wait({waiting}, timeout=self._unkillable_after)
        if done:
            return waiting.result()
        self.leftover = waiting
        log.error("builder_cannot_be_killed", pid=child.pid)
        return Exit(None, None, self._unkillable_after)

    # ---- how it ended

    def _outcome(self, exit_: Exit, broken: str | None) -> Outcome:
        if self._told_at is not None and not isinstance(self._last, said.Built):
            return Halted(self._ended_by())
        if broken:
            return Broke(failure("builder_crashed", f"The builder spoke nonsense: {broken}", stage=self._stage))
        match self._last:
            case said.Built() as built:
                return Finished(built)
            case said.Failed() as why:
                said_why = failure(why.code, why.message, stage=self._stage, native=why.native, **why.where)
                return Broke(said_why.model_copy(update={"remedy": why.remedy}) if why.remedy else said_why)
        return Broke(self._silent_end(exit_))

    def _ended_by(self) -> EndedBy:
        if isinstance(self._last, said.Stopped):
            return self._last.by
        return "killed" if self._killed_at is not None else "between_stages"

    def _silent_end(self, exit_: Exit) -> Failure:
        if exit_.signal == "SIGKILL":
            return failure("builder_killed", stage=self._stage, signal=exit_.signal)
        how = f"was ended by {exit_.signal}" if exit_.signal else f"exited with {exit_.code} and no result"
        where = {"signal": exit_.signal} if exit_.signal else {"exit_code": exit_.code}
        return failure(
            "builder_crashed",
            f"The builder {how} after {exit_.seconds:.1f} s, in stage {self._stage}.",
            stage=self._stage,
            native=self.output.tail(),
            **where,
        )

    def closing(self) -> list[ev.StoredEvent]:
        """Return the ends of phases that the builder left open."""
        now = self._parts.now()
        opened = reversed(list(self._live.picture.phases.values()))
        return [
            ev.PhaseFinished(at=now, phase=ev.PhaseId(id=p.id), elapsed_s=max(0.0, (now - p.since).total_seconds()))
            for p in opened
        ]

    def enter_publish(self) -> None:
        self._stage = "publish"
        self._timing.enter("publish", monotonic())

    def past(self) -> Past:
        return self._live.past()

    def timings(self) -> Timings:
        return self._timing.total(monotonic())


def _broken(listening: "asyncio.Task[None]") -> str | None:
    if listening.cancelled():
        return None
    error = listening.exception()
    if error is not None and not isinstance(error, ProtocolBroken):
        raise error
    return str(error) if error else None


def _instant(at: float, now: datetime) -> datetime:
    """The child's clock is ours; a lying child's is not worth an error."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return now

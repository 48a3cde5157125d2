"""Let many watch one build: events are read and encoded once, live ones collapse to the latest, memory is bounded.

A feed exists while somebody watches or waits. It follows the database (woken by the bus, and by a slow poll for what
other processes write) and keeps stored events in order, live ones by what they are about. A watcher is a cursor into
both, so a slow one costs nothing and misses nothing: it finds fewer, newer steps.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from time import monotonic

import structlog
from pydantic import BaseModel

from app.builds.bus import woken
from app.builds.parts import Parts, in_thread
from app.builds.views import build_view
from app.db import builds, requests
from app.db.events import StoredBody, events_after
from app.errors import Busy, Refused
from trtforge.contract.builds import TERMINAL, Progress
from trtforge.contract.events import Draining, Heartbeat, PhaseProgress, PhaseStep, Snapshot, Stalled, Withdrawn

POLL = 0.5  # seconds between looks when nothing wakes us: how late another process's event may come
RECONNECT_AFTER = 2.0  # seconds a client should give a draining server

log = structlog.get_logger()


@dataclass(frozen=True)
class Encoded:
    """One event, ready to send in either format."""

    sse: bytes
    ndjson: bytes


TRIMMED = Encoded(b"", b"")  # in place of an event that retention took: no bytes, and the seqs after it stay


def encode(kind: str, body: str, seq: int | None = None) -> Encoded:
    number = f"id: {seq}\n" if seq is not None else ""
    return Encoded(f"{number}event: {kind}\ndata: {body}\n\n".encode(), f"{body}\n".encode())


def _encode_live(event: BaseModel) -> Encoded:
    return encode(event.type, event.model_dump_json())  # type: ignore[attr-defined]  # every event has one


class Feed:
    """One watched build. Lives on the event loop; `Feeds` starts and stops it."""

    def __init__(self, parts: Parts, build_id: str) -> None:
        self._parts, self._build_id = parts, build_id
        self.stored: list[Encoded] = []  # stored[i] has seq i + 1
        self.ended = False
        self.closing = False
        self.watchers = 0
        self.left: set[str] = set()  # requests that no longer wait for this build, though it may go on
        self._live: dict[str, tuple[int, Encoded]] = {}  # about what → (version, latest)
        self._steps: dict[int, int] = {}
        self._version = 0
        self._turn = asyncio.Event()  # of this turn only
        self._beat = monotonic()
        self.task: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """Run until the terminal event is in."""
        with self._parts.bus.listen(self._build_id) as wake:
            while not self.ended:
                wake.clear()
                try:
                    await self._read()
                    await self._look()
                except Busy as error:
                    log.warning("feed_behind", build=self._build_id, reason=str(error))
                if not self.ended:
                    await woken(wake, POLL)

    async def _read(self) -> None:
        have = len(self.stored)

        def read() -> list[StoredBody]:
            with self._parts.database.read() as tx:
                return list(events_after(tx, self._build_id, have))

        for event in await in_thread(read):
            self.stored += [TRIMMED] * (event.seq - 1 - len(self.stored))
            self.stored.append(encode(event.type, event.body, event.seq))
            self.ended = self.ended or event.type in TERMINAL
            if event.type == "withdrawn":
                self.left.add(Withdrawn.model_validate_json(event.body).request_id)
        if len(self.stored) > have:
            self.turn()

    async def _look(self) -> None:
        """Take what is live: steps, and a heartbeat when it is due. Another process's are as old as its last renewal."""
        if self.ended:
            return
        live, due = self._parts.live.get(self._build_id), self._beat_is_due()
        progress = live.progress() if live else await in_thread(self._stored_progress) if due else None
        if progress:
            self._take_steps({p.id: p.step for p in progress.phases if p.step is not None})
        if due:
            self._say("heartbeat", _heartbeat(progress))
            if live and progress and live.idle_s >= self._parts.settings.stalled_after_s:
                self._say("stalled", Stalled(silent_s=progress.silent_s))

    def _beat_is_due(self) -> bool:
        if monotonic() - self._beat < self._parts.settings.heartbeat_s:
            return False
        self._beat = monotonic()
        return True

    def _take_steps(self, steps: dict[int, int]) -> None:
        for phase in self._steps.keys() - steps.keys():
            self._live.pop(f"phase {phase}", None)
        for phase, step in steps.items():
            if self._steps.get(phase) != step:
                self._say(f"phase {phase}", PhaseProgress(phase=PhaseStep(id=phase, step=step)))
        self._steps = steps

    def _stored_progress(self) -> Progress | None:
        with self._parts.database.read() as tx:
            row = builds.find(tx, self._build_id)
            return build_view(tx, self._parts, row).progress if row else None

    def _say(self, about: str, event: BaseModel) -> None:
        self._version += 1
        self._live[about] = (self._version, _encode_live(event))
        self.turn()

    def turn(self) -> None:
        """Let everyone look."""
        self._turn.set()
        self._turn = asyncio.Event()

    @property
    def version(self) -> int:
        return self._version

    def since(self, seq: int, version: int) -> list[Encoded]:
        """Return the stored events after `seq`, then the live ones newer than `version`."""
        live = sorted((v, e) for v, e in self._live.values() if v > version) if version < self._version else []
        return [*self.stored[seq:], *(e for _, e in live)]

    async def changed(self) -> None:
        await self._turn.wait()


def _heartbeat(progress: Progress | None) -> Heartbeat:
    if progress is None:
        return Heartbeat(elapsed_s=0.0, silent_s=0.0, activity=None, cpu_s=None, rss_bytes=None)
    return Heartbeat.model_validate(progress.model_dump())


class Feeds:
    """The feeds of this process, one per watched build."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._feeds: dict[str, Feed] = {}
        self.closing = False

    def admit(self) -> None:
        """Raise `Refused` (too_many) when one more watcher would be more than the service carries."""
        limit = self._parts.settings.max_waiters
        if self.watchers >= limit:
            raise Refused("too_many", f"{limit} waits and streams are open (TRTFORGE_MAX_WAITERS).", retry_after=5)

    @property
    def watchers(self) -> int:
        """Waits and streams that are open."""
        return sum(feed.watchers for feed in list(self._feeds.values()))

    def close(self) -> None:
        """End every stream and wait, with `draining`."""
        self.closing = True
        for feed in self._feeds.values():
            feed.closing = True
            feed.turn()

    def _enter(self, build_id: str) -> Feed:
        feed = self._feeds.get(build_id)
        if feed is None:
            feed = self._feeds[build_id] = Feed(self._parts, build_id)
            feed.closing = self.closing
            feed.task = asyncio.create_task(feed.follow())
            feed.task.add_done_callback(lambda task: _failed(task, feed))
        feed.watchers += 1
        return feed

    def _leave(self, build_id: str, feed: Feed) -> None:
        feed.watchers -= 1
        if feed.watchers == 0:
            del self._feeds[build_id]
            if feed.task:
                feed.task.cancel()

    async def watch(self, build_id: str, after: int) -> AsyncGenerator[list[Encoded]]:
        """Yield a snapshot, the stored events after `after`, and what is live, until the terminal event.

        The build must exist. Ends with `draining` when the service does.
        """
        feed = self._enter(build_id)
        try:
            version = feed.version
            yield [_encode_live(await in_thread(lambda: self._snapshot(build_id)))]
            seq = after
            while True:
                have, newest = len(feed.stored), feed.version
                if batch := feed.since(seq, version):
                    yield batch
                seq, version = max(seq, have), newest
                if feed.ended and seq >= len(feed.stored):
                    return
                if feed.closing:
                    yield [_encode_live(Draining(reconnect_after_s=RECONNECT_AFTER))]
                    return
                if len(feed.stored) <= seq and feed.version == version:
                    await feed.changed()
        finally:
            self._leave(build_id, feed)

    def _snapshot(self, build_id: str) -> Snapshot:
        with self._parts.database.read() as tx:
            row = builds.find(tx, build_id)
            assert row is not None
            return Snapshot(seq=row.last_seq, build=build_view(tx, self._parts, row))

    async def until_ended(self, build_id: str, seconds: float, request_id: str | None = None) -> None:
        """Return when the build has ended, `seconds` have passed, or the service drains. Raises `Refused`: too_many.

        Also when `request_id` has left the build.
        """
        self.admit()
        feed = self._enter(build_id)
        try:
            async with asyncio.timeout(seconds):
                while not feed.ended and not feed.closing and request_id not in feed.left:
                    await feed.changed()
        except TimeoutError:
            pass
        finally:
            self._leave(build_id, feed)

    async def until_answered(self, request_id: str, seconds: float) -> None:
        """The same for a request, which goes on to another build when its own fails and it has a fallback."""
        end, waited_on = monotonic() + seconds, None
        while not self.closing:
            build_id = await in_thread(lambda: self._waits_on(request_id))
            if build_id in (None, waited_on) or (left := end - monotonic()) <= 0:
                return
            await self.until_ended(build_id, left, request_id)
            waited_on = build_id

    def _waits_on(self, request_id: str) -> str | None:
        with self._parts.database.read() as tx:
            request = requests.find(tx, request_id)
        return request.build_id if request and request.state == "waiting" else None


def _failed(task: "asyncio.Task[None]", feed: Feed) -> None:
    """A feed that broke ends its streams, so that clients come back instead of waiting for ever."""
    if not task.cancelled() and (error := task.exception()):
        log.error("feed_failed", exc_info=error)
        feed.closing = True
        feed.turn()

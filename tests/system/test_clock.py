"""A clock that jumps by an hour, forth and back, while builds run: leases, events and ends are none the worse."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.builds.parts import Caller, Parts
from app.builds.submit import submit
from app.db import builds, events
from app.db.builds import BuildRow
from app.main import Running
from app.settings import Settings
from tests.system.api import digest_of
from tests.system.models import relus
from trtforge.contract.builds import TERMINAL, Submit
from trtforge.contract.spec import BuildOptions

HOUR = timedelta(hours=1)
JUMPS = (HOUR, -HOUR, timedelta(0), -HOUR, HOUR)
EVERY = 1.2  # seconds between jumps: the lease of 3 s is renewed and looked at in each
LIMITS = BuildOptions(run_timeout_s=4 * 3600)  # deadlines are times of day in the rows: no jump may reach this one
CALLER = Caller("anyone", admin=True, anonymous=False)
LONG = 90.0  # seconds


class Clock:
    off = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.off


async def _bytes(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _ask(running: Running, length: int) -> str:
    content = relus(length)
    model, _ = await running.service.uploads.receive(digest_of(content), _bytes(content), len(content))
    asked = Submit(model=model.digest, options=LIMITS)
    answer = await asyncio.to_thread(submit, running.parts, asked, CALLER, None, b"")
    assert answer.build
    return answer.build.id


def _row(parts: Parts, build_id: str) -> BuildRow:
    with parts.database.read() as tx:
        row = builds.find(tx, build_id)
    assert row
    return row


async def _ended(running: Running, build_id: str) -> BuildRow:
    await running.feeds.until_ended(build_id, LONG)
    return await asyncio.to_thread(_row, running.parts, build_id)


async def _builds_while_it_jumps(folder: Path) -> None:
    clock = Clock()
    settings = Settings(data_dir=folder / "data", lock_dir=folder / "locks", lease_s=3, slots=1)
    running = Running(settings, clock)
    await running.start()
    try:
        while not running.readiness.ready:
            await asyncio.sleep(0.05)
        asked = []
        for number, jump in enumerate(JUMPS):
            asked.append(await _ask(running, 400 + number))
            clock.off = jump
            await asyncio.sleep(EVERY)
        rows = [await _ended(running, build_id) for build_id in asked]
        assert [(r.state, r.attempt) for r in rows] == [("succeeded", 1)] * len(JUMPS)
        for row in rows:
            await asyncio.to_thread(_in_order, running.parts, row)
            assert await asyncio.to_thread(running.parts.store.verify_plan, row.plan_digest or "")
    finally:
        await running.stop()
    assert [p for p in (folder / "data/store/staging").rglob("*") if p.suffix != ".lock"] == []


def _in_order(parts: Parts, row: BuildRow) -> None:
    """The numbers rise by one, the last event is the only last one, and no phase took less than no time."""
    with parts.database.read() as tx:
        stored = list(events.events_after(tx, row.id, 0))
    assert [e.seq for e in stored] == list(range(1, len(stored) + 1))
    assert [e.type for e in stored if e.type in TERMINAL] == [stored[-1].type]
    assert '"elapsed_s":-' not in "".join(e.body for e in stored)


def test_builds_end_as_they_should_while_the_clock_jumps(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_builds_while_it_jumps(tmp_path), 150))

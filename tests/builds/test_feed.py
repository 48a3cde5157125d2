"""Many watch one build: each gets exactly what follows its cursor, whatever its pace, and one encoding serves all."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from sqlalchemy import make_url

from app.builds.conclude import Conclusion
from app.builds.feed import Encoded, Feeds
from app.builds.live import LiveBuild
from app.db import builds
from app.db.builds import BuildRow
from app.errors import Busy, Refused
from tests.scene import Scene, opened, why
from trtforge.contract import events as ev
from trtforge.contract.events import Event, read_event
from trtforge.contract.progress import Picture, fold

T = TypeVar("T")
SOON = 30.0  # seconds nothing here takes unless it hangs


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, SOON))


def _bound(scene: Scene) -> Feeds:
    scene.parts.bus.bind(asyncio.get_running_loop())
    return Feeds(scene.parts)


def _read(encoded: Encoded) -> Event:
    event = read_event(encoded.ndjson)
    assert event
    return event


async def _watch(feeds: Feeds, build_id: str, after: int = 0) -> list[Event]:
    found: list[Event] = []
    async with aclosing(feeds.watch(build_id, after)) as batches:
        async for batch in batches:
            found += [_read(e) for e in batch]
    return found


def _stored(found: list[Event]) -> list[int]:
    return [e.seq for e in found if isinstance(e, ev.Stored)]


def _write(scene: Scene, row: BuildRow, *texts: str) -> None:
    with scene.parts.database.write() as tx:
        said = [ev.Log(at=scene.clock(), level="warning", text=t) for t in texts]
        assert builds.append(tx, row.id, row.attempt, said)
    scene.parts.bus.notify(row.id)


def _fail(scene: Scene, row: BuildRow) -> None:
    Conclusion(scene.parts, row).fail(why())
    scene.parts.bus.notify(row.id)


async def _until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


# ---- what follows


def test_every_cursor_gets_exactly_what_follows(scene: Scene) -> None:
    row = scene.running()

    async def work() -> None:
        feeds = _bound(scene)
        last = row.last_seq + 7
        watching = [asyncio.create_task(_watch(feeds, row.id, after)) for after in range(last)]
        await asyncio.sleep(0)
        for text in "abcdef":
            await asyncio.to_thread(_write, scene, row, text)
        await asyncio.to_thread(_fail, scene, row)
        for after, watcher in enumerate(watching):
            found = await watcher
            assert _stored(found) == list(range(after + 1, last + 1))
            assert isinstance(found[0], ev.Snapshot)
            assert found[-1].type == "failed"

    run(work())


def test_one_who_comes_in_the_middle_and_one_after_the_end(scene: Scene) -> None:
    row = scene.running()

    async def work() -> None:
        feeds = _bound(scene)
        first = asyncio.create_task(_watch(feeds, row.id))
        await asyncio.to_thread(_write, scene, row, "a", "b")
        second = asyncio.create_task(_watch(feeds, row.id, row.last_seq + 1))
        await asyncio.to_thread(_write, scene, row, "c")
        await asyncio.to_thread(_fail, scene, row)
        last = row.last_seq + 4
        assert _stored(await first) == list(range(1, last + 1))
        assert _stored(await second) == list(range(row.last_seq + 2, last + 1))
        assert _stored(await _watch(feeds, row.id, 0)) == list(range(1, last + 1))

    run(work())


def test_folding_a_stream_gives_the_build_as_it_is(scene: Scene) -> None:
    row = scene.running()

    async def work() -> None:
        feeds = _bound(scene)
        watching = asyncio.create_task(_watch(feeds, row.id))
        await asyncio.to_thread(_write, scene, row, "a")
        await asyncio.to_thread(scene.submit)
        await asyncio.to_thread(_fail, scene, row)
        picture = Picture()
        for event in await watching:
            picture = fold(picture, event, scene.clock())
        assert (picture.state, picture.seq, picture.attempt) == ("failed", scene.build(row.id).last_seq, 1)

    run(work())


def test_what_another_process_writes_comes_by_the_poll(scene: Scene) -> None:
    row, other = scene.running(), scene.reopened()

    async def work() -> None:
        feeds = _bound(scene)
        watching = asyncio.create_task(_watch(feeds, row.id))
        await asyncio.to_thread(_write, other, row, "from afar")
        await asyncio.to_thread(_fail, other, row)
        assert _stored(await watching) == list(range(1, row.last_seq + 3))

    run(work())
    other.die()
    other.parts.database.close()


def test_a_build_without_an_end_shows_its_snapshot_first(small: Scene) -> None:
    row = small.running()

    async def work() -> None:
        feeds = _bound(small)
        async with aclosing(feeds.watch(row.id, row.last_seq)) as batches:
            (only,) = await anext(batches)
        snapshot = _read(only)
        assert isinstance(snapshot, ev.Snapshot)
        assert (snapshot.seq, snapshot.build.state, snapshot.build.id) == (row.last_seq, "running", row.id)
        assert feeds._feeds == {}, "nobody watches: no feed is kept"

    run(work())


# ---- pace


def _live(scene: Scene, row: BuildRow) -> LiveBuild:
    live = LiveBuild(scene.clock)
    scene.parts.live.add(row.id, live)
    return live


def _step(scene: Scene, live: LiveBuild, row: BuildRow, phase: int, step: int) -> None:
    live.fold(ev.PhaseProgress(phase=ev.PhaseStep(id=phase, step=step)))
    scene.parts.bus.notify(row.id)


def test_a_slow_watcher_finds_the_latest_step_and_every_stored_event(small: Scene) -> None:
    row = small.running()

    async def work() -> None:
        feeds, live = _bound(small), _live(small, row)
        async with aclosing(feeds.watch(row.id, row.last_seq)) as batches:
            await anext(batches)  # the snapshot; from here on it does not read
            feed = feeds._feeds[row.id]
            for phase in (1, 2):
                opened_ = ev.PhaseStarted(
                    seq=row.last_seq + phase,
                    at=small.clock(),
                    attempt=1,
                    phase=ev.Phase(id=phase, parent=None, name="p", steps=500),
                )
                live.fold(opened_)
            for step in range(500):
                _step(small, live, row, 1, step)
                _step(small, live, row, 2, 499 - step)
                if step % 50 == 0:
                    await asyncio.to_thread(_write, small, row, f"{step}")
                await asyncio.sleep(0)
            await _until(lambda: feed._steps == {1: 499, 2: 0} and len(feed.stored) == row.last_seq + 10)
            batch = [_read(e) for e in await anext(batches)]
        assert _stored(batch) == list(range(row.last_seq + 1, row.last_seq + 11)), "stored first, all of them"
        steps = [(e.phase.id, e.phase.step) for e in batch if isinstance(e, ev.PhaseProgress)]
        assert sorted(steps) == [(1, 499), (2, 0)]
        assert len(feed._live) == 2, "one place per phase, however many steps"
        assert [type(e) for e in batch[:10]] == [ev.Log] * 10

    run(work())


def test_a_closed_phase_is_forgotten(small: Scene) -> None:
    row = small.running()

    async def work() -> None:
        feeds, live = _bound(small), _live(small, row)
        async with aclosing(feeds.watch(row.id, row.last_seq)) as batches:
            await anext(batches)
            feed = feeds._feeds[row.id]
            for number in range(1, 60):
                seq = row.last_seq + 2 * number
                live.fold(
                    ev.PhaseStarted(
                        seq=seq,
                        at=small.clock(),
                        attempt=1,
                        phase=ev.Phase(id=number, parent=None, name="p", steps=None),
                    )
                )
                _step(small, live, row, number, 1)
                await _until(lambda n=number: feed._steps == {n: 1})  # type: ignore[misc]
                live.fold(
                    ev.PhaseFinished(
                        seq=seq + 1, at=small.clock(), attempt=1, phase=ev.PhaseId(id=number), elapsed_s=1.0
                    )
                )
                small.parts.bus.notify(row.id)
            await _until(lambda: not feed._steps)
            assert feed._live == {}

    run(work())


def test_heartbeats_come_while_nothing_else_does(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'x.db'}", tmp_path, heartbeat_s=0.01) as scene:
        row = scene.running()
        with scene.parts.database.write() as tx:
            progress = (
                _live(scene, row).progress().model_copy(update={"cpu_s": 4.0, "silent_s": 9.0, "elapsed_s": 12.0})
            )
            assert builds.renew(tx, row.id, 1, scene.clock(), progress.model_dump(mode="json"))
        queued = scene.queued(1)

        async def beats(feeds: Feeds, build_id: str, many: int) -> list[ev.Heartbeat]:
            found: list[ev.Heartbeat] = []
            async with aclosing(feeds.watch(build_id, 99)) as batches:
                async for batch in batches:
                    found += [b for e in batch if isinstance(b := _read(e), ev.Heartbeat)]
                    if len(found) >= many:
                        break
            return found

        async def work() -> None:
            feeds = _bound(scene)
            here = await beats(feeds, row.id, 2)
            assert here[1].silent_s > here[0].silent_s >= 0, "silence grows while the child says nothing"
            scene.parts.live.remove(row.id)
            (afar,) = await beats(feeds, row.id, 1)
            assert (afar.silent_s, afar.cpu_s, afar.elapsed_s) == (9.0, 4.0, 12.0), "as another process stored it"
            (idle,) = await beats(feeds, queued.id, 1)
            assert (idle.elapsed_s, idle.activity) == (0.0, None)

        run(work())


# ---- ends that are not the build's


def test_draining_ends_every_stream_and_wait(small: Scene) -> None:
    rows = [small.running(n) for n in range(3)]

    async def work() -> None:
        feeds = _bound(small)
        watching = [asyncio.create_task(_watch(feeds, r.id)) for r in rows]
        waiting = asyncio.create_task(feeds.until_ended(rows[0].id, 60))
        await _until(lambda: all(f.stored for f in feeds._feeds.values()) and len(feeds._feeds) == 3)
        feeds.close()
        for watcher in watching:
            assert (await watcher)[-1].type == "draining"
        await waiting
        late = await _watch(feeds, rows[0].id)
        assert [e.type for e in late][-1] == "draining"
        assert feeds._feeds == {}

    run(work())


def test_a_wait_ends_with_the_build_or_with_its_time(small: Scene) -> None:
    row = small.running()

    async def work() -> None:
        feeds = _bound(small)
        await feeds.until_ended(row.id, 0.05)
        assert feeds._feeds == {}
        waiting = asyncio.create_task(feeds.until_ended(row.id, 60))
        await asyncio.to_thread(_fail, small, row)
        await waiting
        await feeds.until_ended(row.id, 60)

    run(work())


def test_one_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'x.db'}", tmp_path, max_waiters=2) as scene:
        row = scene.running()

        async def work() -> None:
            feeds = _bound(scene)
            waits = [asyncio.create_task(feeds.until_ended(row.id, 60)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Refused, match="too_many"):
                feeds.admit()
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            feeds.admit()

        run(work())


def _cut(postgres: str, scene: Scene, allow: str) -> None:
    """Refuse new connections to the scene's database and cut those that are open, or allow them again."""
    name = make_url(scene.parts.settings.url).database
    with closing(psycopg.connect(postgres, autocommit=True)) as admin:
        admin.execute(f'alter database "{name}" allow_connections {allow}')
        admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_database_that_is_gone_for_a_while_ends_no_stream(postgres: str, database_url: str, tmp_path: Path) -> None:
    with opened(database_url, tmp_path, heartbeat_s=0.01) as scene:
        row = scene.running()

        async def work() -> list[Event]:
            feeds = _bound(scene)
            watching = asyncio.create_task(_watch(feeds, row.id))
            await _until(lambda: bool(feeds._feeds) and len(feeds._feeds[row.id].stored) == row.last_seq)
            await asyncio.to_thread(_cut, postgres, scene, "false")
            with pytest.raises(Busy):
                await asyncio.to_thread(scene.parts.database.ping)
            for _ in range(4):  # each wakes the feed, which looks in vain
                scene.parts.bus.notify(row.id)
                await asyncio.sleep(0.1)
            assert not watching.done()
            await asyncio.to_thread(_cut, postgres, scene, "true")
            await asyncio.to_thread(_until_there, scene)
            await asyncio.to_thread(_fail, scene, row)
            return await watching

        found = run(work())
        assert _stored(found) == list(range(1, row.last_seq + 2))
        assert found[-1].type == "failed"


def _until_there(scene: Scene) -> None:
    """Connections of the pool that were cut are noticed one by one."""
    for _ in range(40):
        with suppress(Busy):
            return scene.parts.database.ping()
    raise AssertionError("the database did not come back")


# ---- many


def test_a_thousand_watchers_share_one_encoding(small: Scene) -> None:
    row = small.running()

    async def watch(feeds: Feeds, seen: list[Encoded]) -> None:
        async with aclosing(feeds.watch(row.id, row.last_seq)) as batches:
            async for batch in batches:
                seen += [e for e in batch if e.sse.startswith(b"id: ")]

    async def work() -> None:
        feeds = _bound(small)
        seen: list[list[Encoded]] = [[] for _ in range(1000)]
        watching = [asyncio.create_task(watch(feeds, s)) for s in seen]
        await asyncio.sleep(0)
        assert feeds._feeds[row.id].watchers == 1000
        for text in "abc":
            await asyncio.to_thread(_write, small, row, text * 1000)
        await asyncio.to_thread(_fail, small, row)
        await asyncio.gather(*watching)
        assert all(len(s) == 4 for s in seen)
        assert len({id(e) for s in seen for e in s}) == 4, "the very same bytes for everyone"
        assert feeds._feeds == {}

    run(work())

"""Transactions wait for one another for a bounded time, and say `Busy` when it is over."""

import threading
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
from sqlalchemy import text

from app.db import builds
from app.db.session import BUSY_TIMEOUT, Database
from app.errors import Busy, DatabaseFull, Refused
from tests.scene import Scene, at_once, fine


def test_an_error_takes_everything_back(scene: Scene) -> None:
    build = scene.queued()
    with pytest.raises(ZeroDivisionError), scene.parts.database.write() as tx:  # noqa: PT012
        assert builds.wait(tx, build.id, "device", scene.clock())
        raise ZeroDivisionError
    assert scene.build(build.id) == build


def test_a_reader_does_not_wait_for_a_writer(scene: Scene) -> None:
    build = scene.queued()
    with scene.parts.database.write() as tx:
        builds.wait(tx, build.id, "device", scene.clock())
        assert scene.build(build.id).waiting_for == "worker", "it sees what was committed before"
    assert scene.build(build.id).waiting_for == "device"


def test_a_writer_that_waits_too_long_is_told(scene: Scene) -> None:
    """Also when the one who holds the row will never go on: a process that was stopped, a machine that went away."""
    build, other = scene.queued(), Database(scene.parts.settings.url)
    with other.write() as holding:
        builds.wait(holding, build.id, "device", scene.clock())
        with pytest.raises(Busy), scene.parts.database.write() as tx:
            builds.wait(tx, build.id, "engine_lock", scene.clock())
    other.close()
    with scene.parts.database.write() as tx:
        assert builds.wait(tx, build.id, "engine_lock", scene.clock()), "and the next time it works"


def test_two_threads_of_one_process_wait_for_each_other(scene: Scene) -> None:
    build, held, free = scene.queued(), threading.Event(), threading.Event()

    def hold() -> None:
        with scene.parts.database.write() as tx:
            builds.wait(tx, build.id, "device", scene.clock())
            held.set()
            free.wait(BUSY_TIMEOUT)

    def follow() -> bool:
        held.wait()
        threading.Timer(0.2, free.set).start()
        with scene.parts.database.write() as tx:
            return builds.wait(tx, build.id, "engine_lock", scene.clock())

    assert fine(at_once(hold, follow)) == [None, True]
    assert scene.build(build.id).waiting_for == "engine_lock"


def test_one_reader_more_than_connections_is_told(scene: Scene) -> None:
    with ExitStack() as held:
        for _ in range(16):
            held.enter_context(scene.parts.database.read())
        with pytest.raises(Busy):
            scene.parts.database.ping()
    scene.parts.database.ping()


def test_a_connection_that_comes_free_serves_the_next(scene: Scene) -> None:
    def read() -> int:
        with scene.parts.database.read() as tx:
            threading.Event().wait(0.01)
            one: int = tx.execute(text("select 1")).scalar_one()
            return one

    assert sum(fine(at_once(*[read] * 48))) == 48


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_cut_connection_is_busy_and_the_next_one_works(scene: Scene) -> None:
    with pytest.raises(Busy), scene.parts.database.read() as tx:  # noqa: PT012
        mine = tx.execute(text("select pg_backend_pid()")).scalar_one()
        with Database(scene.parts.settings.url).write() as other:
            other.execute(text("select pg_terminate_backend(:pid)"), {"pid": mine})
        tx.execute(text("select 1"))
    scene.parts.database.ping()


def test_a_database_that_cannot_be_opened_is_busy(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path / 'no folder' / 'x.db'}", "postgresql://nobody@127.0.0.1:1/none"):
        database = Database(url)
        with pytest.raises(Busy):
            database.ping()
        database.close()


def test_a_database_that_may_not_grow_is_full_and_not_only_busy(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'small.db'}")
    with database.write() as tx:
        tx.execute(text("create table rows (content text)"))
    with pytest.raises(DatabaseFull, match="full"), database.write() as tx:  # noqa: PT012
        tx.execute(text("pragma max_page_count = 20"))
        tx.execute(text("insert into rows values (:content)"), {"content": "x" * (1 << 20)})
    with database.read() as tx:
        assert tx.execute(text("select count(*) from rows")).scalar_one() == 0
    database.close()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_a_postgres_that_says_its_disk_is_full_is_full(scene: Scene) -> None:
    says = "do $$ begin raise exception using errcode = 'disk_full'; end $$"
    with pytest.raises(DatabaseFull), scene.parts.database.write() as tx:
        tx.execute(text(says))


HOSTILE = "a\x00b \\u0000 \\\x00"


def test_a_nul_in_a_document_is_replaced(scene: Scene) -> None:
    build = scene.running()
    with scene.parts.database.write() as tx:
        assert builds.renew(tx, build.id, 1, scene.clock(), {HOSTILE: [HOSTILE, "plain"]})
    clean = HOSTILE.replace("\x00", "\ufffd")
    assert scene.build(build.id).progress == {clean: [clean, "plain"]}


def test_a_nul_in_a_text_is_refused_or_kept_but_no_error_of_a_driver(scene: Scene) -> None:
    build = scene.running()
    stop = builds.Stop("cancel", scene.clock(), "ann", "a\x00b")
    refused = pytest.raises(Refused, match="invalid_request")
    with nullcontext() if scene.parts.database.is_sqlite else refused, scene.parts.database.write() as tx:
        builds.ask_stop(tx, build.id, stop, [])
    assert scene.build(build.id).stop_reason in (None, "a\x00b")

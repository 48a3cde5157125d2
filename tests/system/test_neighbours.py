"""Several servers side by side: one database, one store, or one device between them."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import Server
from tests.system.api import Api, assert_consistent, attempts_logged, child_of, children, eventually
from tests.system.models import SLOW, relus

Make = Callable[..., Server]


on_postgres = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)


def test_servers_that_share_a_device_build_one_after_the_other(make_server: Make, tmp_path: Path) -> None:
    locks = str(tmp_path / "locks")
    first, second = (Api(make_server(name, lock_dir=locks, slots="1", cancel_grace_s="0.5")) for name in ("one", "two"))
    busy = first.start(relus(SLOW))
    first.building(busy)
    waiting = second.start(relus())
    second.until(waiting, lambda b: b["waiting_for"] == "device", 5)
    assert children(second.server) == []
    first.http.delete(f"/v1/builds/{busy}")
    assert first.ended(busy)["state"] == "cancelled"
    assert second.ended(waiting)["state"] == "succeeded"
    assert [e["waiting_for"] for e in second.events(waiting) if e["type"] == "waiting"] == ["device"]


def test_servers_that_share_a_store_build_an_engine_once(make_server: Make, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "store").mkdir()
    for name in ("one", "two"):
        (tmp_path / name / "store").symlink_to(tmp_path / "store")
    first, second = Api(make_server("one")), Api(make_server("two"))
    model = relus(2000)
    build = first.start(model)
    first.building(build)
    waiting = second.start(model)
    second.until(waiting, lambda b: b["waiting_for"] == "engine_lock", 3)
    ended, served = first.ended(build), second.ended(waiting)
    assert (ended["state"], served["state"]) == ("succeeded", "succeeded")
    assert served["engine"] == ended["engine"]
    kinds = [e.get("stage", e["type"]) for e in second.events(waiting)]
    assert kinds[:4] == ["queued", "waiting", "started", "prepare"]
    assert not {"parse", "build", "phase_started"} & set(kinds)  # no child
    assert second.http.get(f"/v1/builds/{waiting}/log").text == ""
    assert second.get(f"/v1/engines/{ended['engine_key']}")["build"]["id"] == build
    assert_consistent(second)


@on_postgres
def test_two_processes_on_one_postgres_see_and_stop_each_others_builds(
    database_url: str, make_server: Make, tmp_path: Path
) -> None:
    shared = {"database_url": database_url, "lock_dir": str(tmp_path / "locks"), "slots": "1", "lease_s": "3"}
    first = Api(make_server("data", **shared, cancel_grace_s="0.5"))
    second_server = Server(tmp_path / "data", **shared, heartbeat_s="0.5").start()
    try:
        second = Api(second_server)
        build = first.start(relus(SLOW))
        first.building(build)
        owner, other = (first, second) if children(first.server) else (second, first)
        assert other.build(build)["state"] == "running"
        seen = other.until(build, lambda b: b["progress"] and b["progress"]["cpu_s"], 10)
        assert seen["progress"]["elapsed_s"] > 0
        assert (other.submit(seen["model"])["disposition"], other.build(build)["requests"]) == ("joined", 2)

        assert other.http.delete(f"/v1/builds/{build}", params={"force": True}).status_code == 202
        ended = other.ended(build, 5 + 2)
        assert ended["state"] == "cancelled"
        assert children(owner.server) == []
        assert owner.events(build) == other.events(build)
        built = other.built(relus())
        assert owner.http.get(f"/v1/engines/{built['engine_key']}/ready").status_code == 204
        assert_consistent(owner)
    finally:
        assert second_server.stop() == 0


@on_postgres
def test_a_server_that_was_stopped_writes_nothing_once_its_build_is_taken_back(
    database_url: str, make_server: Make, tmp_path: Path
) -> None:
    """It still holds the lock of the key, so its build waits; the kernel frees that only when it dies."""
    shared = {"database_url": database_url, "lock_dir": str(tmp_path / "locks"), "slots": "1", "lease_s": "3"}
    first = Api(make_server("data", **shared))
    build = first.start(relus(SLOW))
    first.building(build)
    builder = child_of(first.server)
    second_server = Server(tmp_path / "data", **shared).start()
    try:
        second = Api(second_server)
        psutil.Process(first.server.pid).send_signal(signal.SIGSTOP)
        before = second.build(build)
        _pass_lease(second, build)
        asleep = second.build(build)
        assert (asleep["state"], asleep["attempt"]) == ("running", 1)  # the holder of the lock is that very attempt

        assert second.http.delete(f"/v1/builds/{build}").status_code == 202
        ended = second.ended(build, 3)  # the lease is over: nobody is there to stop it
        assert (ended["state"], ended["cancel"]["ended_by"]) == ("cancelled", "worker_lost")
        events = second.events(build)
        psutil.Process(first.server.pid).send_signal(signal.SIGCONT)
        eventually(lambda: not builder.is_running() or builder.status() == psutil.STATUS_ZOMBIE)
        eventually(lambda: "lease_lost" in first.server.log.read_text())
        assert second.events(build) == events
        assert second.build(build) == ended
        assert before["id"] == ended["id"]
        assert first.built(relus())["state"] == "succeeded"
        assert attempts_logged(first.server) == 2  # of both servers: they write one log
        assert_consistent(second)
    finally:
        assert second_server.stop() == 0


def _pass_lease(api: Api, build: str) -> None:
    """Wait until a build's lease of 3 s is over and others had several looks at it: nothing tells, so time does."""
    end = time.monotonic() + 6
    while time.monotonic() < end:
        assert api.build(build)["state"] == "running"
        time.sleep(0.5)

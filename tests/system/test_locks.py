"""The locks of a running server: private, its own, never deleted, and free the moment it dies."""

import json
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.conftest import Server
from tests.system.api import Api, child_of, gone
from tests.system.models import SLOW, relus
from tests.system.soundness import assert_sound, files, holders


def locks_of(server: Server) -> list[Path]:
    """Return the key and device lock files."""
    found = [*files(server.data / "store" / "locks"), *files(server.lock_dir)]
    return sorted(p for p in found if p.suffix == ".lock")


def descriptors(pid: int) -> set[tuple[int, int]]:
    """Return device and inode of every file a process has open."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        seen = entry.stat()
        found.add((seen.st_dev, seen.st_ino))
    return found


def test_locks_are_the_servers_alone_and_free_when_it_dies(make_server: Callable[..., Server]) -> None:
    server = make_server(slots="1", cancel_grace_s="0.5")
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    locks = locks_of(server)
    assert len(locks) == 2
    for lock in locks:
        assert holders(lock) == [server.pid]
        assert lock.parent.stat().st_mode & 0o077 == 0
        assert lock.stat().st_mode & 0o077 == 0
        record = json.loads(Path(f"{lock}.holder").read_text())
        assert (record["build"], record["attempt"], record["pid"]) == (build, 1, server.pid)
        assert record["pid_started"] == psutil.Process(server.pid).create_time()
    child = child_of(server)
    kept = {(p.stat().st_dev, p.stat().st_ino) for p in files(server.data.parent) if p.suffix == ".lock"}
    assert not kept & descriptors(child.pid)
    assert kept & descriptors(server.pid)

    inodes = [lock.stat().st_ino for lock in locks]
    server.kill()
    assert all(holders(lock) == [] for lock in locks)
    assert gone([child], 2)
    server.start()
    api.until(build, lambda b: b["attempt"] == 2)
    assert all(holders(lock) == [server.pid] for lock in locks)
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    assert api.ended(build)["state"] == "cancelled"
    assert_sound(server)
    assert [lock.stat().st_ino for lock in locks] == inodes  # the same files all along
    assert not any(Path(f"{lock}.holder").exists() for lock in locks)  # nobody holds them, and nobody says so

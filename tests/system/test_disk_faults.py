"""The store full, read-only or gone while the server works: refused or failed in words, never half an engine."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app.db.session import Database
from app.errors import DatabaseFull
from tests.conftest import Server, light
from tests.system.api import Api, digest_of, staged
from tests.system.models import relus
from tests.system.soundness import assert_sound, children, eventually, held_locks, strays

MIB = 1 << 20


def mounted(*options: str) -> bool:
    return subprocess.run(["mount", *options], capture_output=True).returncode == 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few MiB of one's own; needs the right to mount, which the machine that runs the tests must give."""
    folder = tmp_path / "small"
    folder.mkdir()
    assert mounted("-t", "tmpfs", "-o", "size=12m", "trtforge-test", str(folder)), (
        "run as root, or in a container that is"
    )
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(folder: Path, leave: int) -> Iterator[None]:
    """Take the room of a disk, but for `leave` bytes."""
    stat = os.statvfs(folder)
    with (folder / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(4096, stat.f_bavail * stat.f_frsize - leave))
    yield
    (folder / "filler").unlink()


def served(api: Api, key: str) -> None:
    manifest = api.get(f"/v1/engines/{key}")
    plan = api.http.get(f"/v1/engines/{key}/plan")
    assert (plan.status_code, digest_of(plan.content)) == (200, manifest["plan"]["digest"])


def failed(api: Api, build_id: str) -> str:
    """Return the code of a failure that has to do with the disk: one that may pass."""
    failure = api.ended(build_id)["failure"]
    assert failure["retryable"], failure
    assert "/" not in failure["message"], failure
    code: str = failure["code"]
    return code


def test_a_full_store_refuses_uploads_and_fails_builds_and_both_work_once_there_is_room(
    small: Path, make_server: Callable[..., Server]
) -> None:
    elsewhere = {"lock_dir": str(small.parent / "locks"), "database_url": f"sqlite:///{small.parent}/trtforge.db"}
    server = make_server("small/data", min_free_bytes="0", slots="1", **elsewhere)
    api = Api(server)
    kept = api.built(relus())["engine_key"]
    large = bytes(16 * MIB)
    answer = api.http.put(f"/v1/models/{digest_of(large)}", content=large)
    assert (answer.status_code, answer.json()["code"]) == (507, "store_full")
    assert_sound(server)

    digest, build = api.upload(relus()), api.start(light("squeezenet"))
    api.building(build)
    with filled(small, 4 << 10):
        assert failed(api, build) in ("store_full", "publish_failed")  # in the child, or when the plan is taken
        served(api, kept)
        assert api.http.get("/livez").status_code == 200
    assert api.ended(api.submit(digest)["build"]["id"])["state"] == "succeeded"
    assert api.submit(api.build(build)["model"])["disposition"] == "created"  # such a failure is not remembered
    assert_sound(server)


def test_a_database_on_a_full_disk_is_told_as_full_and_goes_on_afterwards(
    small: Path, tmp_path: Path, make_server: Callable[..., Server]
) -> None:
    server = make_server("elsewhere", slots="1", database_url=f"sqlite:///{small}/trtforge.db")
    api = Api(server)
    digest = api.upload(relus())
    with filled(small, 0):
        answer = next(
            a for a in (named(api, number, digest) for number in range(2000)) if a.status_code not in (200, 201)
        )
        assert (answer.status_code, answer.json()["code"]) == (507, "store_full"), answer.text
        assert "database" in answer.json()["detail"]
        assert answer.json()["remedy"]
        assert api.http.get("/livez").status_code == 200
    assert api.ended(api.submit(digest)["build"]["id"])["state"] == "succeeded"
    assert named(api, 0, digest).status_code in (200, 201)
    assert_sound(server)
    assert "Traceback" not in server.log.read_text()


def test_a_database_that_finds_no_room_for_its_index_is_full(small: Path) -> None:
    """SQLite says "disk I/O error" then, and no reason."""
    database = Database(f"sqlite:///{small}/trtforge.db")
    with database.write() as tx:
        tx.exec_driver_sql("create table rows (content text)")
    database.close()
    with filled(small, 0), pytest.raises(DatabaseFull):
        database.ping()
    database.ping()
    database.close()


def named(api: Api, number: int, digest: str) -> httpx.Response:
    """Write a row, and the pages of the database that it takes."""
    return api.http.put(f"/v1/names/name-{number}", json={"model": digest, "spec": {"optimization_level": number % 5}})


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nobody write below a folder: by a mount for root, whom rights do not bind; by rights for anyone else."""
    if os.geteuid() == 0:
        assert mounted("--bind", str(folder), str(folder))
        assert mounted("-o", "remount,bind,ro", str(folder))
        yield
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    else:
        found = [folder, *(p for p in folder.rglob("*") if p.is_dir())]
        before = [p.stat().st_mode for p in found]
        for p in found:
            p.chmod(0o500)
        yield
        for p, mode in zip(found, before, strict=True):
            p.chmod(mode)


def test_a_read_only_store_serves_what_it_has_and_builds_once_it_can_be_written(
    make_server: Callable[..., Server],
) -> None:
    server = make_server(slots="1", cancel_grace_s="1")
    api = Api(server)
    kept = api.built(relus())["engine_key"]
    waiting, running = api.upload(relus()), api.start(relus(1200))
    api.building(running)
    with read_only(server.data / "store"):
        served(api, kept)
        refused = api.http.put("/v1/models/sha256:" + "0" * 64, content=b"x")
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert refused.headers["retry-after"]
        assert failed(api, running) == "publish_failed"
        eventually(lambda: api.http.get("/readyz").status_code == 503, 5, "ready with a store that cannot be written")
        queued = api.submit(waiting)["build"]["id"]
        assert api.build(queued)["state"] in ("queued", "failed", "running")
    server.until_ready()
    if api.build(queued)["state"] == "failed":
        queued = api.submit(waiting)["build"]["id"]
    assert api.ended(queued)["state"] == "succeeded"
    again = api.submit(api.build(running)["model"])
    assert again["disposition"] == "created"
    assert api.ended(again["build"]["id"])["state"] == "succeeded"
    assert_sound(server)
    assert "Traceback" not in server.log.read_text()


def test_a_store_that_was_removed_is_told_and_mended_by_a_restart(make_server: Callable[..., Server]) -> None:
    server = make_server(slots="1", cancel_grace_s="1")
    api = Api(server)
    lost = api.built(relus())
    build = api.start(relus(1200))
    api.building(build)
    (server.data / "store").rename(server.data / "gone")
    assert failed(api, build) == "publish_failed"
    answer = api.http.get(f"/v1/engines/{lost['engine_key']}/plan")
    assert (answer.status_code, answer.json()["code"]) == (410, "engine_corrupt")
    refused = api.http.put("/v1/models/sha256:" + "0" * 64, content=b"x")
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    eventually(lambda: api.http.get("/readyz").status_code == 503, 5, "ready without a store")
    assert children(server) == []
    assert strays(server) == []

    assert server.stop() == 0
    server.start()
    again = api.submit(lost["model"])
    assert again["disposition"] == "created"
    assert api.ended(again["build"]["id"])["failure"]["retryable"]  # the model went with the store
    assert api.built(relus())["state"] == "succeeded"
    assert held_locks(server) == []
    assert staged(server.data) == []
    assert "Traceback" not in server.log.read_text()

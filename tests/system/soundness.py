"""What must hold whatever happened: asked of a server that has come to rest, of its disk and of the process table."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from app.store.local import LocalStore
from tests.conftest import Server
from tests.system.api import staged
from trtforge.contract.engines import Manifest

REST = 60.0  # seconds a server may take to end what runs
Json = dict[str, Any]


def assert_sound(server: Server, *, shared: bool = False) -> None:
    """Every build is over or queued, no process or lock is left, staging is empty, and bytes are what rows say.

    `shared`: other servers with rows of their own use the store too, so it holds more than this one's rows.
    """
    with httpx.Client(base_url=server.url, timeout=30) as http:
        eventually(lambda: not all_of(http, "/v1/builds", state="running"), REST, "builds still run")
        eventually(lambda: not children(server), 10, "children are left")
        assert strays(server) == []
        eventually(lambda: not staged(server.data), 10, "staging is not empty")
        assert held_locks(server) == []
        _bytes_equal_rows(http, server, shared)
        _requests_are_answered(http)


def _bytes_equal_rows(http: httpx.Client, server: Server, shared: bool) -> None:
    rows = {e["engine_key"]: e for e in all_of(http, "/v1/engines")}
    kept = {m.engine_key: m for m in manifests(server.data)}
    for key, row in rows.items():
        manifest = _ok(http.get(f"/v1/engines/{key}")).json()
        plan = _ok(http.get(f"/v1/engines/{key}/plan")).content
        assert manifest["plan"] == row["plan"] == {"digest": sha256(plan), "size": len(plan)}
        assert kept[key] == Manifest.model_validate(manifest)
    if not shared:
        assert set(kept) == set(rows)  # recovery adds the row of every engine whose build was lost on the way
    for kind in ("plans", "models"):
        for path in files(server.data / "store" / kind):
            assert sha256(path.read_bytes()) == f"sha256:{path.name}"
    plans = {f"sha256:{p.name}" for p in files(server.data / "store" / "plans")}
    assert plans >= {m.plan.digest for m in kept.values()}


def _requests_are_answered(http: httpx.Client) -> None:
    for build in all_of(http, "/v1/builds"):
        if build["state"] != "queued":
            assert build["requests"] == 0, build
            assert build["finished_at"], build
        if build["state"] == "succeeded":
            assert build["engine"]["engine_key"] == build["engine_key"]


# ---- looks


def all_of(http: httpx.Client, path: str, **asked: str) -> list[Json]:
    found: list[Json] = []
    cursor: dict[str, str] = {}
    while True:
        page = _ok(http.get(path, params={**asked, **cursor, "limit": "500"})).json()
        found += page["items"]
        if not page["next_cursor"]:
            return found
        cursor = {"cursor": page["next_cursor"]}


def _ok(answer: httpx.Response) -> httpx.Response:
    assert answer.status_code == 200, f"{answer.request.url}: {answer.status_code} {answer.text[:500]}"
    return answer


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def files(folder: Path) -> Iterator[Path]:
    return (p for p in folder.rglob("*") if p.is_file())


def manifests(data: Path) -> list[Manifest]:
    """Return every manifest; a damaged one is an error."""
    found = list(LocalStore(data / "store").manifests())
    assert len(found) == len(list(files(data / "store" / "manifests")))
    return found


def children(server: Server) -> list[psutil.Process]:
    try:
        return [p for p in psutil.Process(server.pid).children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    except psutil.NoSuchProcess:
        return []


def strays(server: Server) -> list[int]:
    """Return processes that work in the data folder and are not the server's: children of one that died."""
    ours = {p.pid for p in children(server)}
    return [pid for pid in psutil.pids() if pid not in ours and _works_in(pid, server.data.resolve())]


def _works_in(pid: int, folder: Path) -> bool:
    try:
        where = Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return False
    return where.is_relative_to(folder)


def held_locks(server: Server) -> list[str]:
    """Return the build and device locks that anybody holds, as the kernel tells: asking disturbs nobody."""
    locks = [*files(server.data / "store" / "locks"), *files(server.lock_dir)]
    return [path.name for path in locks if path.suffix == ".lock" and holders(path)]


def holders(lock: Path) -> list[int]:
    """Return the processes that hold a lock on a file."""
    seen = lock.stat()
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return [int(words[-4]) for words in lines if "->" not in words and words[-3] == device]


def eventually(holds: Callable[[], object], seconds: float, otherwise: str) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(0.05)

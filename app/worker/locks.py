"""Locks on files: held by one process on one machine or one shared disk, and a record beside each that says who."""

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from app.errors import NotReady


class Lock:
    """A held lock. The kernel frees it when this process ends; its descriptor is not inherited."""

    def __init__(self, held: FileLock, record: Path) -> None:
        self._held, self._record = held, record

    def release(self) -> None:
        """Free the lock, from any thread; safe to repeat. The lock file stays: deleting it lets a second holder in."""
        if self._held.is_locked:
            with suppress(OSError):  # a disk that cannot be written must not keep the lock; the next holder writes over
                self._record.unlink(missing_ok=True)
            self._held.release()

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_lock(path: Path, holder: dict[str, Any]) -> Lock | None:
    """Take the lock at once, or return None when somebody holds it.

    `holder` (build, attempt, …) is written to `<path>.holder`, with this process's `pid` and `pid_started` (seconds
    since the epoch: a number alone may be another process's by now). Makes the folder, private. Raises `NotReady` when
    others own it or may write there, `OSError` when the file system cannot lock.
    """
    _private(path.parent)
    held = FileLock(path, timeout=0, mode=0o600, thread_local=False, preserve_lock_file=True)
    try:
        held.acquire()
    except Timeout:
        return None
    lock = Lock(held, _record(path))
    try:
        _write(_record(path), {**holder, "pid": os.getpid(), "pid_started": psutil.Process().create_time()})
    except BaseException:
        lock.release()
        raise
    return lock


def read_holder(path: Path) -> dict[str, Any] | None:
    """Return who holds the lock at `path` or held it when it was killed; None when nobody does or it cannot be read."""
    try:
        holder = json.loads(_record(path).read_text())
    except (OSError, ValueError):
        return None
    return holder if isinstance(holder, dict) else None


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".holder")


def _write(record: Path, holder: dict[str, Any]) -> None:
    """Only the holder of the lock writes, so one temporary name is enough."""
    draft = record.with_name(record.name + ".new")
    draft.write_text(json.dumps(holder))
    draft.replace(record)


def _private(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise NotReady(
            f"The lock folder {folder} must be a folder of this user alone: others could hold or swap the locks. "
            f"Remove it or set TRTFORGE_LOCK_DIR to another."
        )

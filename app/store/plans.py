"""Take a plan out of a child's hands: what was hashed is what gets its final name.

The child ran foreign native code as the same user, so its folder may hold anything. It is opened without following
links, and must be one regular file that no other name points at. Its process group must be dead before: nothing else
could keep it from writing to the open file while it is hashed. The descriptor is held until the rename, which
checks that the name still means that very file, unchanged.
"""

import errno
import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from app.errors import PlanRejected, StoreUnusable
from app.store.disk import disk_errors, sync_folder

NO_PLAN = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EACCES})


class StagedPlan:
    """A plan that is whole on the disk, under a name in staging. Close it, also after `put_plan`; a `with` does."""

    def __init__(self, path: Path) -> None:
        """Open, check, hash and fsync. Raises `PlanRejected`, `StoreFull`, `StoreUnusable`."""
        self._name = path.name
        self._folder = _opened(path.parent, os.O_DIRECTORY)
        try:
            self._file = _opened(Path(path.name), os.O_NONBLOCK, self._folder)  # a FIFO must not keep us waiting
        except BaseException:
            os.close(self._folder)
            raise
        try:
            self._seen = _plain_file(self._file)
            self.size = self._seen.st_size  # bytes
            self.digest = _hash_and_sync(self._file)
            self._check()
        except BaseException:
            self.close()
            raise

    def rename(self, final: Path) -> None:
        """Give the plan its final name, over any file that has it, and make that last. May be repeated."""
        with disk_errors():
            final.parent.mkdir(exist_ok=True)
            if not self._is_at(final):
                self._check()
                os.fchmod(self._file, 0o444)
                os.rename(self._name, final, src_dir_fd=self._folder)
            sync_folder(final.parent)

    def close(self) -> None:
        for fd in (self._file, self._folder):
            if fd >= 0:
                os.close(fd)
        self._file = self._folder = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        """Raise `PlanRejected` unless the name still means the file that was hashed, and nobody wrote to it."""
        try:
            named = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError as gone:
            raise PlanRejected("the plan vanished while it was taken") from gone
        for now in (named, _plain_file(self._file)):
            if _identity(now) != _identity(self._seen):
                raise PlanRejected("the plan changed while it was taken")

    def _is_at(self, final: Path) -> bool:
        try:
            return os.path.samestat(final.lstat(), self._seen)
        except FileNotFoundError:
            return False


def _opened(path: Path, flags: int, folder: int | None = None) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except OSError as error:
        if error.errno in NO_PLAN:
            raise PlanRejected(f"the plan cannot be opened: {error.strerror}") from error
        raise StoreUnusable(str(error.strerror)) from error


def _plain_file(fd: int) -> os.stat_result:
    seen = os.fstat(fd)
    if not stat.S_ISREG(seen.st_mode):
        raise PlanRejected("the plan is not a regular file")
    if seen.st_nlink != 1:
        raise PlanRejected("the plan has other names too")
    if seen.st_size == 0:
        raise PlanRejected("the plan is empty")
    return seen


def _identity(seen: os.stat_result) -> tuple[int, ...]:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def _hash_and_sync(fd: int) -> str:
    """Return the digest, with every byte on the disk. Reading and flushing overlap, which hides the shorter one."""
    with disk_errors(), ThreadPoolExecutor(1, "fsync") as flusher, os.fdopen(os.dup(fd), "rb") as file:
        flushed = flusher.submit(os.fsync, fd)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        flushed.result()
    return "sha256:" + digest

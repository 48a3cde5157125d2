"""Small moves on a disk that survive a crash, and what its errors mean."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.errors import StoreFull, StoreUnusable

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # EFBIG: a limit on the size of files ends the room too
NO_LINK = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP})  # then a copy does
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn errors of the disk into `StoreFull` and `StoreUnusable`; their messages name no path of this machine."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        if error.errno in FULL:
            raise StoreFull(reason) from error
        raise StoreUnusable(reason) from error


def hex_of(digest: str) -> str:
    """Return the 64 hex digits, which are safe as a file name. Raises `ValueError` for anything else."""
    if not (match := DIGEST.fullmatch(digest)):
        raise ValueError(f"not a sha256 digest: {digest!r}")
    return match[1]


def plain(name: str) -> str:
    """Return `name` if it is safe as a file name: letters, digits, `_` and `-`, 100 at most. Raises `ValueError`."""
    if not PLAIN_ID.fullmatch(name):
        raise ValueError(f"not an id: {name!r}")
    return name


def sync_folder(folder: Path) -> None:
    """Make the entries of `folder` last, and `folder` itself in its parent: it may be new."""
    for one in (folder, folder.parent):
        fd = os.open(one, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def move(source: Path, final: Path) -> None:
    """Rename a file that is already on the disk to its final name, over any file of that name, and make that last."""
    final.parent.mkdir(exist_ok=True)
    source.rename(final)
    sync_folder(final.parent)


def link(stored: Path, path: Path) -> None:
    """Make a stored file readable at `path`, without copying it where that can be. Raises `FileNotFoundError`."""
    if not stored.is_file():
        raise FileNotFoundError(stored.name)
    with disk_errors():
        try:
            path.hardlink_to(stored)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            shutil.copyfile(stored, path)


def drop(final: Path) -> None:
    """Remove a file, if it is there, and make that last."""
    try:
        final.unlink()
    except FileNotFoundError:
        return
    sync_folder(final.parent)


def digest_of(path: Path) -> str | None:
    """Return the sha256 of a file, None when it is not there."""
    try:
        with path.open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def discard(folder: Path) -> None:
    """Remove a folder and all in it, also where a child took the rights from folders of its own."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            with suppress(OSError):
                if not (below := Path(parent, name)).is_symlink():
                    below.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)  # what vanishes meanwhile is another sweep's work

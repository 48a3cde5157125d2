"""The store full, read-only or gone while the server works: refused or failed in words, never half an engine."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Server, light
from tests.system.api import Api, digest_of
from tests.system.models import SLOW, relus
from tests.system.soundness import assert_sound, children, eventually, files, held_locks, staged, strays

MIB = 1 << 20
READ_ONLY_FS = 5 * MIB  # bytes of a small disk


def mounted(*options: str) -> bool:
    return subprocess.run(["mount", *options], capture_output=True).returncode == 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few MiB of one's own; needs the right to mount, which the machine that runs the tests must give."""
    folder = tmp_path / "small"
    folder.mkdir()
    assert mounted("-t", "tmpfs", "-o", "size=12m", "trtforge-test", str(folder)), "run as root, or in a container that is"
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

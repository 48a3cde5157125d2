"""Plans as files in a child's folder."""

import errno
import os
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from app.worker.messages import Failed
from app.worker.verdict import Ends


def read_plan(name: str) -> Any:
    """Return its bytes, as memory that the kernel fills when they are looked at."""
    with Path(name).open("rb") as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def write_plan(name: str, plan: Any) -> None:
    """Write to a file that nobody else has made; whoever publishes it syncs it. Raises `Ends` when the disk is full."""
    left = memoryview(plan).cast("B")
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            while left:
                left = left[os.write(fd, left) :]
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Ends(Failed("store_full", f"There is no room for a plan of {len(memoryview(plan))} bytes.")) from error

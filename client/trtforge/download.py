"""Bring a plan down: resumed after a cut or a kill, also by another process, and verified before it has its name.

What has arrived lies beside the goal as `.<goal>.<digest>.part`, always as one piece from the beginning, under a lock
that its writer holds: a second process that wants the same goal at the same time works on a part of its own.
"""

import fcntl
import hashlib
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from glob import escape
from io import BufferedRandom
from pathlib import Path
from urllib.parse import urlsplit

from trtforge.connection import Connection, Patience
from trtforge.contract.engines import PlanRef
from trtforge.errors import PlanMismatch, ServiceError, ServiceUnreachable

Moved = Callable[[int, int], None]  # bytes so far, bytes in all

SEGMENT = 8 << 20  # bytes of one ranged request
STREAMS = 4  # requests at once, each with a segment in memory
WORTH_IT = 8 * SEGMENT  # bytes; below, one stream is done before several are under way


def fetch(
    connection: Connection,
    address: str,
    plan: PlanRef,
    goal: Path,
    moved: Moved | None = None,
    streams: int | None = None,
) -> None:
    """Put the verified plan at `goal`, whole or not at all; go on with what an earlier call left.

    `streams`: ranged requests at once; by default several for a large plan from another machine, where one connection
    does not fill the line. Raises `PlanMismatch` when the bytes are not `plan`'s, `OSError` when the folder takes no
    file. After a cut what has arrived stays for the next call; after a refusal or wrong bytes nothing does.
    """
    with _part(goal, plan) as (file, part):
        inherited = file.seek(0, os.SEEK_END)
        download = _Download(connection, address, plan, file, moved)
        try:
            download.run(streams or _streams(connection.url, plan.size - inherited))
            if inherited and _digest(file) != plan.digest:  # what was left here was not what it should have been
                file.truncate(0)
                file.seek(0)
                download.run(1)
            _verify(file, plan)
        except (PlanMismatch, ServiceError):
            part.unlink(missing_ok=True)
            raise
        os.fsync(file.fileno())
        part.replace(goal)
    _sync_folder(goal.parent)
    _sweep(goal)


def _streams(url: str, missing: int) -> int:
    host = urlsplit(url).hostname or ""
    near = host in ("localhost", "::1") or host.startswith("127.")
    return 1 if near or missing < WORTH_IT else STREAMS


class _Download:
    """One plan on its way into one file, which always holds its beginning without gaps."""

    def __init__(
        self, connection: Connection, address: str, plan: PlanRef, file: BufferedRandom, moved: Moved | None
    ) -> None:
        self._connection, self._address, self._plan = connection, address, plan
        self._file, self._moved = file, moved

    def run(self, streams: int) -> None:
        """Receive what is missing; go on after a cut while the service's patience lasts."""
        patience = Patience(self._connection.patience_s)
        if self._file.tell() > self._plan.size:
            self._file.truncate(0)
            self._file.seek(0)
        while (have := self._file.tell()) < self._plan.size:
            try:
                self._in_segments(streams) if streams > 1 else self._in_one()
            except (ServiceError, ServiceUnreachable) as trouble:
                self._file.flush()
                if self._file.tell() > have:
                    patience.renew()
                if not self._connection.may_pass(trouble) or not patience.pause(getattr(trouble, "retry_after", None)):
                    raise

    def _in_one(self) -> None:
        for piece in self._pieces(self._file.tell(), None):
            self._write(piece)

    def _in_segments(self, streams: int) -> None:
        """Ask for several segments at once and write them in order: a cut leaves no gap."""
        starts = iter(range(self._file.tell(), self._plan.size, SEGMENT))
        with ThreadPoolExecutor(streams, "fetch") as pool:
            coming: deque[Future[bytes]] = deque()
            try:
                for start in starts:
                    coming.append(pool.submit(self._segment, start))
                    if len(coming) == streams:
                        self._write(coming.popleft().result())
                while coming:
                    self._write(coming.popleft().result())
            finally:
                for one in coming:
                    one.cancel()

    def _segment(self, start: int) -> bytes:
        end = min(start + SEGMENT, self._plan.size)
        got = bytearray()
        for piece in self._pieces(start, end):
            got += piece
        if len(got) != end - start:
            raise ServiceUnreachable(self._connection.url, "a part of the plan ended early")
        return bytes(got)

    def _pieces(self, start: int, end: int | None) -> Iterator[bytes]:
        tag = f'"{self._plan.digest}"'
        headers = {"Accept-Encoding": "identity"}
        if start or end:
            headers |= {"Range": f"bytes={start}-{'' if end is None else end - 1}", "If-Range": tag}
        with self._connection.stream(self._address, headers=headers) as response:
            if response.headers.get("ETag", tag) != tag:
                raise PlanMismatch(self._plan.digest, response.headers["ETag"].strip('"'))
            if response.status_code != 206 and end is None:
                self._file.seek(0)
                self._file.truncate()
            elif response.status_code != 206:
                raise PlanMismatch(self._plan.digest, "sent whole where a part was asked for")
            yield from response.iter_raw()

    def _write(self, piece: bytes) -> None:
        self._file.write(piece)
        have = self._file.tell()
        if have > self._plan.size:
            raise PlanMismatch(self._plan.digest, f"longer than {self._plan.size} bytes")
        if self._moved:
            self._moved(have, self._plan.size)


@contextmanager
def _part(goal: Path, plan: PlanRef) -> Iterator[tuple[BufferedRandom, Path]]:
    """Open the part of this goal and plan, or one of our own when another process writes to it."""
    shared = goal.parent / f".{goal.name}.{plan.digest[7:23]}.part"
    file = _locked(shared)
    part = shared if file else shared.with_name(f".{goal.name}.{secrets.token_hex(8)}.part")
    try:
        with file or part.open("xb+") as opened:
            yield opened, part
    finally:
        if part != shared:
            part.unlink(missing_ok=True)
        else:
            with suppress(FileNotFoundError):
                if part.stat().st_size == 0:
                    part.unlink()


def _locked(part: Path) -> BufferedRandom | None:
    """Open a part that nobody else writes to; the lock goes with the descriptor, however the process ends."""
    while True:
        file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "rb+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        try:
            if os.path.samestat(part.stat(), os.fstat(file.fileno())):
                return file
        except FileNotFoundError:
            pass
        file.close()  # it got its final name, or was removed, between our open and our lock


def _digest(file: BufferedRandom) -> str:
    file.seek(0)
    return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _verify(file: BufferedRandom, plan: PlanRef) -> None:
    got = _digest(file)
    if got != plan.digest:
        raise PlanMismatch(plan.digest, got)


def _sweep(goal: Path) -> None:
    """Remove parts of other plans for this goal that nobody writes to any more."""
    for part in goal.parent.glob(f".{escape(goal.name)}.{'[0-9a-f]' * 16}.part"):
        with suppress(OSError):
            if file := _locked(part):
                part.unlink()
                file.close()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

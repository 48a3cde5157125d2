"""Bytes out of a child, read on the event loop: no more at once than the loop can bear, and only so many kept."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable

from app.worker.lines import MAX_LINE

CHUNK = 1 << 16  # bytes read at once: what a pipe holds
PACE = 0.05  # seconds of rest after each BURST bytes: a flooding child waits, not the loop
BURST = 1 << 19


class ProtocolBroken(Exception):
    """The child said something on its own descriptor that is no message."""


class PipeReader:
    """Give what arrives on `fd` to `take`, at most `BURST` bytes per `PACE` seconds, until the other end is closed.

    `take` returns whether more is wanted now; after False, `resume` asks for more. Once the other end is closed it gets
    one empty chunk. The descriptor is ours and is closed at the end. Works with every event loop that has `add_reader`.
    """

    def __init__(self, fd: int, take: Callable[[bytes], bool]) -> None:
        os.set_blocking(fd, False)
        self._fd, self._take = fd, take
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._burst = 0
        self._rest: asyncio.TimerHandle | None = None
        self.closed = asyncio.Event()
        self.resume()

    def resume(self) -> None:
        if not self._reading and self._rest is None and not self.closed.is_set():
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def finish(self) -> None:
        """Take what is still in the pipe, wanted or not, without waiting for anything, and close."""
        for _ in range((1 << 20) // CHUNK + 1):  # a pipe holds 1 MiB at most, unless its owner is privileged
            if self.closed.is_set() or not self._read():
                break
        self.close()

    def close(self) -> None:
        if self.closed.is_set():
            return
        self._pause()
        if self._rest:
            self._rest.cancel()
        os.close(self._fd)
        self.closed.set()
        self._take(b"")

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _readable(self) -> None:
        chunk = self._read()
        self._burst += len(chunk or b"")
        if self._burst >= BURST and not self.closed.is_set():
            self._burst = 0
            self._pause()
            self._rest = self._loop.call_later(PACE, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self.resume()

    def _read(self) -> bytes | None:
        try:
            chunk = os.read(self._fd, CHUNK)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return None
        if not self._take(chunk):
            self._pause()
        return chunk


class Lines:
    """The lines that arrive on `fd`, one by one. Keeps at most about `2 * MAX_LINE` bytes; then the writer waits."""

    def __init__(self, fd: int) -> None:
        self._whole: deque[bytes] = deque()
        self._part = bytearray()
        self._kept = 0  # bytes in `_whole`
        self._arrived = asyncio.Event()
        self._broken = False
        self.pipe = PipeReader(fd, self._take)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield until the descriptor is closed; what comes after the last line end is a line that was cut off: nothing.

        Raises `ProtocolBroken` for a line of more than `MAX_LINE` bytes.
        """
        while True:
            while self._whole:
                yield self._next()
            if self._broken:
                raise ProtocolBroken(f"a line of more than {MAX_LINE} bytes")
            if self.pipe.closed.is_set():
                return
            self._arrived.clear()
            self.pipe.resume()
            await self._arrived.wait()

    def _next(self) -> bytes:
        line = self._whole.popleft()
        self._kept -= len(line)
        if self._kept < MAX_LINE and not self._broken:
            self.pipe.resume()
        return line

    def _take(self, chunk: bytes) -> bool:
        self._arrived.set()
        if self._broken:
            return False
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line = bytes(self._part) + piece
            self._part.clear()
            if len(line) >= MAX_LINE:
                return self._give_up()
            self._whole.append(line)
            self._kept += len(line)
        self._part += rest
        if len(self._part) >= MAX_LINE:
            return self._give_up()
        return self._kept < MAX_LINE

    def _give_up(self) -> bool:
        self._part.clear()
        self._broken = True
        return False

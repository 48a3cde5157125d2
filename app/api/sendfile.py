"""Let the kernel send a file: no byte of a plan passes through Python.

ASGI has no word for it, so this reaches into uvicorn: `note_server`, called where the app begins, keeps the request's cycle
in the scope; `send_file` writes to a duplicate of its socket between the headers and the end of the answer. It uses
`transport` and `expected_content_length` of uvicorn's httptools cycle. Where one of them is missing, or the connection is
encrypted, `send_file` says so before anything is sent and the caller sends the file in the portable way; a test notices
when that becomes the rule.

The socket does not block: a thread is held while the kernel takes bytes, never while a client is slow or gone.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.types import Scope, Send

CYCLE = "trtforge.cycle"
AT_ONCE = 4 << 20  # bytes the kernel is given per call: the turns of 16 clients stay short
# One thread, of its own. The kernel copies from memory faster than any line carries, and every further thread only
# contends with the event loop for the interpreter: with 4 the median of other requests rose from 1 to 9 ms.
_threads = ThreadPoolExecutor(1, "sendfile")


def note_server(scope: Scope, send: Send) -> None:
    """Keep the server's own end of a request within reach. To be called outermost: further inside `send` is wrapped."""
    if scope["type"] == "http":
        scope[CYCLE] = getattr(send, "__self__", None)


@dataclass(frozen=True)
class Span:
    """Bytes of a file."""

    start: int
    size: int


async def send_file(scope: Scope, send: Send, path: Path, span: Span, start: dict[str, Any]) -> bool:
    """Answer with `start` (an ASGI message) and a span of the file; False: nothing was sent, it must go another way.

    Raises `OSError` when the file cannot be opened, before anything is sent, and `RuntimeError` when it ends too soon.
    """
    cycle = scope.get(CYCLE)
    transport = getattr(cycle, "transport", None)
    if cycle is None or transport is None or not hasattr(cycle, "expected_content_length"):
        return False
    if transport.get_extra_info("sslcontext") or transport.get_extra_info("socket") is None:
        return False
    file = await _in_thread(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
    try:
        await send(start)
        if not transport.is_closing():
            await _body(transport, file, span)
        if not transport.is_closing():
            cycle.expected_content_length = 0  # it was sent; uvicorn counts what passes through it
            await send({"type": "http.response.body", "body": b""})
    finally:
        os.close(file)
    return True


async def _body(transport: Any, file: int, span: Span) -> None:
    """Send the span after what the transport still holds. A client that is gone ends it."""
    socket = os.dup(transport.get_extra_info("socket").fileno())  # stays ours if the transport closes its own
    try:
        while transport.get_write_buffer_size() and not transport.is_closing():
            await asyncio.sleep(0)
            await _writable(socket)
        sent = 0
        while sent < span.size and not transport.is_closing():
            taken = await _in_thread(partial(_give, socket, file, span.start + sent, span.size - sent))
            if taken is None:
                return
            if taken == 0:
                await _writable(socket)
            sent += taken
    finally:
        os.close(socket)


def _give(socket: int, file: int, start: int, size: int) -> int | None:
    """Give the kernel what it takes now; return the bytes, 0 when the client is slow, None when it is gone."""
    try:
        taken = os.sendfile(socket, file, start, min(size, AT_ONCE))
    except BlockingIOError:
        return 0
    except (BrokenPipeError, ConnectionError):
        return None
    if taken == 0:
        raise RuntimeError("The plan became shorter while it was sent.")
    return taken


async def _writable(socket: int) -> None:
    """Wait until the socket takes more, or its client is gone."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(socket, wake)
    try:
        await ready
    finally:
        with suppress(ValueError):
            loop.remove_writer(socket)


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(_threads, work)

"""uvicorn's HTTP protocol with two bounds that it lacks: on what comes before and after a body, and on how long a head takes.

Its parser joins a header or an address byte by byte in memory, without an end; and a connection that sent half a head
would be kept for ever.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.problems import problem
from app.errors import Refused

MOST_HEAD = 64 << 10  # bytes that come without being body; what the kernel hands over at once (256 KiB) may be more
HEAD_S = 30.0  # seconds from the beginning of a connection, or of a request on it, until its head is whole


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection that goes over a bound; it is told why when no answer has begun."""

    head_s = HEAD_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._barren = 0  # bytes since anything came of them
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_whole()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._barren += len(data)
        super().data_received(data)
        if self._barren > MOST_HEAD and not self.transport.is_closing():
            self._end(f"A head may have {MOST_HEAD} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._barren = 0
        self._head_is_whole()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._barren = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._barren = 0
        super().on_message_complete()

    def _wait_for_head(self) -> None:
        self._head_is_whole()
        self._late = self.loop.call_later(self.head_s, self.transport.close)

    def _head_is_whole(self) -> None:
        if self._late:
            self._late.cancel()
            self._late = None

    def _end(self, why: str) -> None:
        if self.cycle is None or self.cycle.response_complete:
            answer = problem(Refused("too_large", why), "/")
            lines = [b"HTTP/1.1 413 Content Too Large", *(b": ".join(pair) for pair in answer.raw_headers)]
            self.transport.write(b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)]))
        self.transport.close()

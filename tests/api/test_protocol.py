"""What comes without being a body is bounded, in bytes and in time; on a real server."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from time import monotonic

import pytest
import uvicorn
from fastapi import FastAPI, Request

from app.api.models import body_of
from app.api.protocol import MOST_HEAD, BoundedProtocol
from app.errors import Refused
from tests.conftest import free_port

FLOOD = b"x" * (1 << 16)


class Hasty(BoundedProtocol):
    head_s = 1.0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app, free = FastAPI(), free_port()

    @app.post("/")
    async def count(request: Request) -> int:
        return len(await request.body())

    server = uvicorn.Server(uvicorn.Config(app, port=free, http=Hasty, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    yield free
    server.should_exit = True
    thread.join()


def flooded(port: int, begin: bytes, piece: bytes = FLOOD) -> bytes:
    """Send `begin`, then `piece` again and again until the server ends it; return what it said."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(begin)
        try:
            for _ in range(1000):
                client.sendall(piece)
        except OSError:
            pass
        else:
            raise AssertionError(f"{1000 * len(piece)} bytes were taken")
        try:
            return client.recv(1 << 16)
        except OSError:
            return b""


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /", FLOOD),
        (b"GET / HTTP/1.1\r\nX-Long: ", FLOOD),
        (b"GET / HTTP/1.1\r\n", b"X-Many: 1\r\n" * 1000),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: 1\r\n" * 1000),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", FLOOD),
    ],
    ids=["address", "header", "headers", "trailers", "extension"],
)
def test_what_is_no_body_has_an_end(port: int, begin: bytes, piece: bytes):
    assert flooded(port, begin, piece)[:13] in (b"", b"HTTP/1.1 413 ")


def test_it_says_why_and_a_long_body_is_none_of_it(port: int):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * (MOST_HEAD + 1))
        said = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert said.startswith(b"HTTP/1.1 413 Content Too Large\r\n")
    assert b'"code":"too_large"' in said
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        for _ in range(2):  # on a connection that is kept, each request has the whole bound
            client.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (10 * len(FLOOD)))
            for _ in range(10):
                client.sendall(FLOOD)
            said = client.recv(1 << 16)
            assert said.startswith(b"HTTP/1.1 200 OK\r\n")
            assert said.endswith(b"%d" % (10 * len(FLOOD)))


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: 1\r\n"])
def test_half_a_head_is_not_waited_for(port: int, sent: bytes):
    began = monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        assert client.recv(1) == b""
    assert monotonic() - began >= 0.9


def test_a_sender_that_falls_silent_is_given_up():
    async def never() -> dict[str, object]:
        await asyncio.sleep(3600)
        return {}

    async def read() -> None:
        async for _ in body_of(Request({"type": "http"}, receive=never), silent_s=0.05):
            raise AssertionError("nothing was sent")

    with pytest.raises(Refused, match="Nothing came"):
        asyncio.run(read())

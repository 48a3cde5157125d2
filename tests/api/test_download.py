"""Downloads through a real server, over raw HTTP: ranges, conditions, slow readers, cut connections."""

import base64
import email
import hashlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import BinaryIO

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.api.download import plan_response
from app.api.sendfile import note_server
from app.errors import Refused

SIZE = (3 << 20) + 17  # more than three chunks, and no whole number of them
LARGE = 64 << 20
CONTENT = Random(1).randbytes(SIZE)  # the same in every process: its digest names tests
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
ETAG = f'"{DIGEST}"'
REPR = f"sha-256=:{base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()}:"


class Server:
    def __init__(self, folder: Path, by_kernel: bool, http: str, loop: str) -> None:
        self.plan, self.size, self.by_kernel = folder / "plan", SIZE, by_kernel
        routes = [Route("/plan", self._plan, methods=["GET", "HEAD"]), Route("/ping", lambda _: Response(b"pong"))]
        inner = Starlette(routes=routes, exception_handlers={Refused: _refused})

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if self.by_kernel:
                note_server(scope, send)
            await inner(scope, receive, send)

        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, http=http, loop=loop)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})

    def _plan(self, request: Request) -> Response:
        return plan_response(request, self.plan, DIGEST, self.size, immutable="immutable" in request.query_params)

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def ask(self, method: str = "GET", path: str = "/plan", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"code": error.code}, error.status, error.headers)


WAYS = {"kernel": (True, "httptools", "uvloop"), "portable": (False, "httptools", "uvloop")}


@pytest.fixture(scope="module", params=WAYS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("plans"), *WAYS[request.param]) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.plan.unlink(missing_ok=True)
    running.plan.write_bytes(CONTENT)
    running.size = SIZE
    return running


@pytest.fixture
def large(server: Server) -> Server:
    """A plan that no buffer on the way can hold, so that a reader that stops is a server that waits."""
    os.truncate(server.plan, LARGE)
    server.size = LARGE
    return server


def test_the_whole_plan(server):
    answer, body = server.ask()
    assert answer.status == 200
    assert body == CONTENT
    assert answer.headers["ETag"] == ETAG
    assert answer.headers["Content-Length"] == str(SIZE)
    assert answer.headers["Accept-Ranges"] == "bytes"
    assert answer.headers["Repr-Digest"] == REPR
    assert answer.headers["Cache-Control"] == "no-cache"
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{DIGEST[7:]}.plan"'
    assert "Last-Modified" not in answer.headers


def test_an_address_with_the_digest_may_be_kept_for_ever(server):
    answer, _ = server.ask(path="/plan?immutable")
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=0-9"}], ids=["plain", "Range counts on GET only"])
def test_head_has_the_headers_of_the_whole_and_no_body(server, headers):
    answer, body = server.ask("HEAD", **headers)
    whole, _ = server.ask()
    assert (answer.status, body) == (200, b"")
    ours = {k: v for k, v in answer.headers.items() if k != "date"}
    assert ours == {k: v for k, v in whole.headers.items() if k != "date"}


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=5-9", 5, 9),
        ("BYTES=5-9", 5, 9),
        ("bytes= 5-9 ", 5, 9),
        ("bytes=100-", 100, SIZE - 1),
        ("bytes=-1", SIZE - 1, SIZE - 1),
        (f"bytes=-{SIZE * 2}", 0, SIZE - 1),
        (f"bytes=7-{SIZE * 2}", 7, SIZE - 1),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE - 1),
        (f"bytes=0-{(1 << 20) - 1}", 0, (1 << 20) - 1),
        (f"bytes=1-{2 << 20}", 1, 2 << 20),
        (f"bytes=2-3,{SIZE}-", 2, 3),
        ("bytes=,5-9,", 5, 9),
    ],
)
def test_one_range(server, asked, first, last):
    answer, body = server.ask(Range=asked)
    assert answer.status == 206
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{SIZE}"
    assert answer.headers["Content-Length"] == str(last - first + 1)
    assert answer.headers["Repr-Digest"] == REPR
    assert answer.headers["ETag"] == ETAG
    assert body == CONTENT[first : last + 1]


def test_several_ranges(server):
    answer, body = server.ask(Range="bytes=0-9,200-299,-5")
    assert answer.status == 206
    assert answer.headers["Content-Length"] == str(len(body))
    assert answer.headers["Repr-Digest"] == REPR
    kind = answer.headers["Content-Type"]
    assert kind.startswith("multipart/byteranges; boundary=")
    parts = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body).walk()
    got = [part["Content-Range"] for part in parts][1:]
    wanted = [(0, 9), (200, 299), (SIZE - 5, SIZE - 1)]
    assert got == [f"bytes {first}-{last}/{SIZE}" for first, last in wanted]
    edge = body.split(b"--" + kind.partition("boundary=")[2].encode())
    assert [e.partition(b"\r\n\r\n")[2][:-2] for e in edge[1:-1]] == [CONTENT[f : t + 1] for f, t in wanted]


def test_overlapping_ranges_never_add_up_to_more_than_the_plan(server):
    answer, body = server.ask(Range="bytes=" + ",".join(["0-"] * 100))
    assert answer.status == 206
    assert body == CONTENT


@pytest.mark.parametrize("asked", [f"bytes={SIZE}-", "bytes=-0", f"bytes={SIZE}-{SIZE + 5},{'9' * 50}-"])
def test_a_range_outside_the_plan(server, asked):
    answer, body = server.ask(Range=asked)
    assert answer.status == 416
    assert answer.headers["Content-Range"] == f"bytes */{SIZE}"
    assert b"range_not_satisfiable" in body


@pytest.mark.parametrize(
    "asked",
    ["bytes", "bytes=", "bytes=-", "bytes=9-5", "bytes=a-b", "bytes=0-9,x", "lines=0-9", "bytes=0x1-9", "bytes=1_0-20",
     "bytes=+1-9", "bytes=" + ",".join(f"{n}-{n}" for n in range(0, 300, 2)), "bytes=" + "9" * 5000 + "-"],
)  # fmt: skip
def test_a_range_that_is_none_is_ignored(server, asked):
    answer, body = server.ask(Range=asked)
    assert (answer.status, len(body)) == (200, SIZE)


@pytest.mark.parametrize(
    ("condition", "status"),
    [(ETAG, 206), (f"W/{ETAG}", 200), ('"other"', 200), ("Wed, 21 Oct 2015 07:28:00 GMT", 200), (DIGEST, 200)],
)
def test_a_resume_only_goes_on_with_the_same_plan(server, condition, status):
    answer, body = server.ask(Range="bytes=10-19", If_Range=condition)
    assert answer.status == status
    assert body == (CONTENT[10:20] if status == 206 else CONTENT)


@pytest.mark.parametrize("condition", [ETAG, f"W/{ETAG}", "*", f'"a", {ETAG}', f'"a,b",W/{ETAG} , "c"'])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_the_client_has_is_not_sent_again(server, method, condition):
    answer, body = server.ask(method, If_None_Match=condition, Range="bytes=0-9")
    assert (answer.status, body) == (304, b"")
    assert answer.headers["ETag"] == ETAG
    assert answer.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("condition", ['"other"', DIGEST, "", '"*"', f'"x{DIGEST}"'])
def test_what_the_client_does_not_have_is_sent(server, condition):
    assert server.ask(If_None_Match=condition)[0].status == 200


def test_a_plan_that_is_gone_or_damaged_is_said_to_be(server):
    server.plan.write_bytes(CONTENT[:-1])
    assert server.ask()[0].status == 410
    server.plan.unlink()
    answer, body = server.ask()
    assert (answer.status, body) == (410, b'{"code":"engine_corrupt"}')
    server.plan.symlink_to("/dev/zero")
    assert server.ask()[0].status == 410


def raw(server: Server, **headers: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # bytes; the system would grow it
    connection.settimeout(20)
    connection.connect(("127.0.0.1", server.port))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"GET /plan HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode())
    return connection


def test_slow_readers_keep_nobody_waiting(large):
    slow = [raw(large) for _ in range(60)]  # more than the server has threads
    try:
        assert all(one.recv(15) == b"HTTP/1.1 200 OK" for one in slow)
        until_held(large.plan, 60)  # every one of them is in the middle of its download
        assert large.ask(path="/ping")[1] == b"pong"
        answer, body = large.ask(Range="bytes=0-999")
        assert (answer.status, body) == (206, CONTENT[:1000])
    finally:
        for one in slow:
            one.close()
    until_held(large.plan, 0)


def test_a_reader_that_leaves_in_the_middle_leaves_no_open_file(large):
    for _ in range(5):
        with raw(large) as connection:
            connection.recv(1000)
            until_held(large.plan, 1)
        until_held(large.plan, 0)
    until_held(large.plan, 0)


def held(plan: Path) -> int:
    """How often this process, which the server runs in, has the plan open."""
    return sum(os.path.realpath(link) == str(plan) for link in Path("/proc/self/fd").iterdir())


def until_held(plan: Path, times: int) -> None:
    end = time.monotonic() + 20
    while (now := held(plan)) != times:
        assert time.monotonic() < end, f"the plan is open {now} times"
        time.sleep(0.01)


def test_a_download_cut_in_the_middle_goes_on_where_it_stopped(server):
    with raw(server) as connection:
        got = b""
        while len(got) < 100_000:
            got += connection.recv(65536)
    had = got.partition(b"\r\n\r\n")[2]
    answer, rest = server.ask(Range=f"bytes={len(had)}-", If_Range=ETAG)
    assert answer.status == 206
    assert had + rest == CONTENT


def test_a_plan_cut_short_while_it_is_sent_never_looks_whole(large):
    connection = http.client.HTTPConnection("127.0.0.1", large.port, timeout=20)
    connection.request("GET", "/plan")
    answer = connection.getresponse()
    answer.read(1000)
    os.truncate(large.plan, 1000)
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    connection.close()


@pytest.mark.parametrize(
    ("way", "loop", "direct"),
    [("httptools", "uvloop", True), ("httptools", "asyncio", True), ("h11", "uvloop", False)],
)
def test_the_kernel_sends_with_this_uvicorn_and_nothing_is_lost_where_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, loop: str, direct: bool
):
    """Fails when an upgrade takes away what `app.api.sendfile` reaches for: then downloads are several times slower."""
    given: list[int] = []
    sendfile = os.sendfile

    def counted(out: int, file: int, start: int, size: int) -> int:
        given.append(sent := sendfile(out, file, start, size))
        return sent

    monkeypatch.setattr(os, "sendfile", counted)
    (tmp_path / "plan").write_bytes(CONTENT)
    with Server(tmp_path, True, way, loop) as server:
        assert server.ask()[1] == CONTENT
        assert server.ask(Range="bytes=7-1000006")[1] == CONTENT[7:1000007]
        assert sum(given) == (SIZE + 1000000 if direct else 0)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as kept, kept.makefile("rb") as reader:
            for _ in range(3):  # one connection, several answers, asked for at once
                kept.sendall(b"GET /plan HTTP/1.1\r\nHost: x\r\n\r\nGET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
                assert [_next(reader), _next(reader)] == [CONTENT, b"pong"]


def _next(reader: BinaryIO) -> bytes:
    assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
    headers = http.client.parse_headers(reader)
    return reader.read(int(headers["Content-Length"]))

"""Load on a server, from a process of its own: `python -m benchmarks.load KIND JSON` prints what it measured as JSON.

Bare sockets and hardly any parsing: on two cores a comfortable client would measure itself.
"""

import asyncio
import json
import os
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import uvloop

HOST = "127.0.0.1"
PIECE = 1 << 20  # bytes received at once
_TIMED = re.compile(rb"t=(\d+\.\d+)")


def main(kind: str, asked: dict[str, Any]) -> None:
    print(json.dumps(BODIES[kind](**asked) if kind in BODIES else uvloop.run(CROWDS[kind](**asked))))


def request(method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def answer(reader: asyncio.StreamReader) -> int:
    """Read one answer that has a length, or none; return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    if length:
        await reader.readexactly(int(length))
    return int(head[9:12])


# ---- requests per second over kept connections


async def rate(
    port: int,
    path: str,
    connections: int,
    seconds: float,
    method: str = "GET",
    body: str = "",
    first: int = 0,
) -> dict[str, Any]:
    """Send one request again and again for `seconds`; `@N` in its body counts up from `first`."""
    coming = (request(method, path, None, body.replace("@N", str(number)).encode()) for number in count(first))
    began = perf_counter()
    found = await asyncio.gather(*(_ask(port, coming, began + seconds) for _ in range(connections)))
    took = perf_counter() - began
    answers = Counter(status for one in found for status in one)
    return {"answers": answers, "per_second": answers.total() / took}


async def _ask(port: int, coming: Iterator[bytes], end: float) -> list[int]:
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
    answers = []
    while perf_counter() < end:
        writer.write(next(coming))
        answers.append(await answer(reader))
    writer.close()
    return answers


# ---- many who wait and watch


async def crowd(port: int, watch: str, watchers: int, waiters: int = 0, wait: str = "") -> dict[str, Any]:
    """Open `watchers` streams of `watch` and `waiters` waits on `wait`; return once every stream has ended.

    Gaps are seconds between two heartbeats, or the start, on one stream. Latencies are seconds from the time that an
    event carries as `t=<monotonic>` to its arrival; `last_at` is when the last of these came.
    """
    waiting = [asyncio.create_task(_wait(port, wait)) for _ in range(waiters)]
    seen = [_Seen() for _ in range(watchers)]
    await asyncio.gather(*(_watch(port, watch, one) for one in seen))
    late = sorted(latency for one in seen for latency in one.latencies)
    return {
        "ended_well": sum(one.ended_well for one in seen),
        "gaps": [gap for one in seen for gap in one.gaps],
        "waits": await asyncio.gather(*waiting),
        "timed": len(late),
        "latency": {share: late[int((len(late) - 1) * share)] for share in (0.5, 0.99, 1.0)} if late else {},
        "last_at": max((one.last_at for one in seen), default=0.0),
    }


@dataclass
class _Seen:
    """What one stream brought."""

    gaps: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    last_at: float = 0.0
    ended_well: bool = False


async def _watch(port: int, path: str, seen: _Seen) -> None:
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
    writer.write(request("GET", path, {"Accept": "text/event-stream"}))
    beat, rest = monotonic(), b""
    while chunk := await reader.read(PIECE):
        now = monotonic()
        whole, _, rest = (rest + chunk).rpartition(b"\n\n")
        if times := _TIMED.findall(whole):
            seen.latencies += [now - float(sent) for sent in times]
            seen.last_at = now
        if b"event: heartbeat\n" in whole:
            seen.gaps.append(now - beat)
            beat = now
        if rest.endswith(b"0\r\n\r\n"):
            seen.ended_well = True
            break
    writer.close()


async def _wait(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
    writer.write(request("GET", path, {"Prefer": "wait=60"}))
    status = await answer(reader)
    writer.close()
    return status


# ---- a probe, as a cluster sends it: a new connection each time


async def probe(port: int, paths: Sequence[str], every_s: float, seconds: float) -> dict[str, list[list[float]]]:
    """Ask each path in turn every `every_s` seconds, whether or not the last answer came.

    Return [when it was sent (of the clock all processes share), seconds it took] by path. Any answer but 200 is an
    error.
    """
    end, pending = monotonic() + seconds, []
    found: dict[str, list[list[float]]] = {path: [] for path in paths}
    for path in cycle(paths):
        if monotonic() > end:
            break
        pending.append(asyncio.create_task(_probe(port, path, found[path])))
        await asyncio.sleep(every_s)
    await asyncio.gather(*pending)
    return found


async def _probe(port: int, path: str, found: list[list[float]]) -> None:
    began = monotonic()
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request("GET", path, {"Connection": "close"}))
    if (status := await answer(reader)) != 200:
        raise RuntimeError(f"{path} answered {status}")
    found.append([began, monotonic() - began])
    writer.close()


# ---- big bodies


def download(port: int, path: str, clients: int, each: int, headers: dict[str, str] | None = None) -> dict[str, float]:
    """Fetch `path` with so many clients, `each` times; the bytes are received and dropped."""
    sizes: list[int] = []

    def fetch() -> None:
        with socket.create_connection((HOST, port)) as connection:
            for _ in range(each):
                connection.sendall(request("GET", path, headers))
                sizes.append(_body(connection))

    began = perf_counter()
    _together([fetch] * clients)
    took = perf_counter() - began
    if len(sizes) != clients * each:
        raise RuntimeError("a download was cut")
    return {"bytes": sum(sizes), "seconds": took}


def upload(port: int, path: str, file: str) -> dict[str, float]:
    """PUT a file from the page cache and wait for the answer."""
    began = perf_counter()
    with socket.create_connection((HOST, port)) as connection, Path(file).open("rb") as source:
        size = os.fstat(source.fileno()).st_size
        connection.sendall(request("PUT", path, {"Content-Length": str(size), "Connection": "close"}))
        connection.sendfile(source)
        said = connection.recv(PIECE)
        if said[9:12] not in (b"200", b"201"):
            raise RuntimeError(said.decode())
    return {"bytes": size, "seconds": perf_counter() - began}


def _body(connection: socket.socket) -> int:
    into = bytearray(PIECE)
    head = b""
    while b"\r\n\r\n" not in head:
        got = connection.recv_into(into)
        if not got:
            raise RuntimeError("the connection was closed")
        head += into[:got]
    head, _, body = head.partition(b"\r\n\r\n")
    if head[9:12] not in (b"200", b"206"):
        raise RuntimeError(head.decode())
    size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    left = size - len(body)
    while left:
        got = connection.recv_into(into, min(PIECE, left))
        if not got:
            raise RuntimeError("the connection was closed")
        left -= got
    return size


def _together(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


BODIES: dict[str, Callable[..., Any]] = {"download": download, "upload": upload}
CROWDS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {"rate": rate, "crowd": crowd, "probe": probe}

if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))

"""Downloads by 16 clients at once, side by side: the kernel, the portable way, the framework's default, and nginx if named.

`python -m benchmarks.download [URL…]`; each URL is a plan served by something else (nginx, say), of the same size.
"""

import json
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, sleep
from urllib.parse import urlsplit

import psutil

CLIENTS = 16
SIZE = 48 << 20  # bytes; small enough to stay in the page cache
ROUNDS = 3

SERVE = """
import sys, uvicorn
from pathlib import Path
from starlette.applications import Starlette
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from app.api.download import plan_response
from app.api.sendfile import note_server
path, size = Path(sys.argv[1]), Path(sys.argv[1]).stat().st_size
plan = lambda r: plan_response(r, path, "sha256:" + "0" * 64, size, immutable=True)
routes = [Route("/plan", plan), Route("/default", lambda r: FileResponse(path)), Route("/ping", lambda r: Response(b"pong"))]
inner = Starlette(routes=routes)
async def app(scope, receive, send):
    if sys.argv[3] == "kernel": note_server(scope, send)
    await inner(scope, receive, send)
uvicorn.run(app, port=int(sys.argv[2]), log_level="critical", access_log=False)
"""


def _read(url: str, headers: dict[str, str]) -> int:
    """Return the bytes of the body. The kernel throws them away here, so that the reader does not set the pace."""
    parts = urlsplit(url)
    asked = {"Host": parts.netloc, "Connection": "close"} | headers
    lines = [f"GET {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.items()), "", ""]
    with socket.create_connection((parts.hostname, parts.port), timeout=120) as connection:
        connection.sendall("\r\n".join(lines).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(256)
        size, buffer = len(head.partition(b"\r\n\r\n")[2]), bytearray(4 << 20)
        while got := connection.recv_into(buffer, len(buffer), socket.MSG_TRUNC):
            size += got
    assert size >= SIZE - 2, (size, head)
    return size


def _ping(url: str, until: threading.Event, took: list[float]) -> None:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    while not until.is_set():
        began = monotonic()
        connection.request("GET", "/ping")
        connection.getresponse().read()
        took.append(monotonic() - began)
        sleep(0.005)


def _round(url: str, headers: dict[str, str], server: int | None) -> tuple[float, float, float]:
    """Return GiB/s, the p99 in ms of other requests meanwhile, and the server's CPU seconds a GiB."""
    before = _cpu(server)
    done, took = threading.Event(), [0.0]
    ping = threading.Thread(target=_ping, args=(url, done, took))
    ping.start()
    began = monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        sizes = list(pool.map(lambda _: _read(url, headers), range(CLIENTS)))
    rate = sum(sizes) / (monotonic() - began) / (1 << 30)
    done.set()
    ping.join()
    late = quantiles(took, n=100)[98] * 1000 if len(took) > 1 else 0.0
    return rate, late, (_cpu(server) - before) / (sum(sizes) / (1 << 30))


def _cpu(server: int | None) -> float:
    if server is None:
        return 0.0
    times = psutil.Process(server).cpu_times()
    return times.user + times.system


def _serve(path: Path, way: str) -> tuple[subprocess.Popen[bytes], str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return subprocess.Popen([sys.executable, "-c", SERVE, str(path), str(port), way]), f"http://127.0.0.1:{port}"


def main(*others: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan"
        path.write_bytes(bytes(SIZE))
        (kernel, by_kernel), (portable, by_hand) = _serve(path, "kernel"), _serve(path, "portable")
        part = {"Range": f"bytes=1-{SIZE - 2}"}
        ways: dict[str, tuple[str, dict[str, str], int | None]] = {
            "kernel": (f"{by_kernel}/plan", {}, kernel.pid),
            "kernel, one range": (f"{by_kernel}/plan", part, kernel.pid),
            "portable": (f"{by_hand}/plan", {}, portable.pid),
            "default": (f"{by_hand}/default", {}, portable.pid),
            **{url: (url, {}, None) for url in others},
        }
        try:
            sleep(5)
            rounds = [{name: _round(*way) for name, way in ways.items()} for _ in range(ROUNDS)]
        finally:
            kernel.terminate()
            portable.terminate()
    for name in ways:
        rates, late, cpu = zip(*(one[name] for one in rounds), strict=True)
        told = {"GiB_per_s": round(median(rates), 2), "p99_ms": round(median(late), 1)}
        print(json.dumps({"way": name, **told, "cpu_s_per_GiB": round(median(cpu), 3)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

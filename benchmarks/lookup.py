"""Lookups a second, side by side: the manifest of an engine, and a bare FastAPI that says hello, in one process each.

`python -m benchmarks.lookup URL ENGINE_KEY` asks a service that runs; rounds alternate, so that noise meets both alike.
"""

import asyncio
import json
import socket
import subprocess
import sys
from statistics import median
from time import monotonic, sleep

CONNECTIONS = 16
ROUND_S = 2.0
ROUNDS = 5

HELLO = """
import uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/")
async def hello(): return {"hello": "world"}
uvicorn.run(app, port=%d, log_level="critical", access_log=False)
"""


async def _ask(port: int, path: str, until: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    done = 0
    while monotonic() < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length[15:]))
        done += 1
    writer.close()
    return done


async def _round(port: int, path: str) -> float:
    until = monotonic() + ROUND_S
    return sum(await asyncio.gather(*(_ask(port, path, until) for _ in range(CONNECTIONS)))) / ROUND_S


def main(url: str, engine_key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    hello = subprocess.Popen([sys.executable, "-c", HELLO % port])
    try:
        sleep(3)
        ours = int(url.rpartition(":")[2])
        rates: dict[str, list[float]] = {"hello": [], "manifest": []}
        for _ in range(ROUNDS):
            rates["hello"].append(asyncio.run(_round(port, "/")))
            rates["manifest"].append(asyncio.run(_round(ours, f"/v1/engines/{engine_key}")))
        ratios = [m / h for m, h in zip(rates["manifest"], rates["hello"], strict=True)]
        told = {name: round(median(rate)) for name, rate in rates.items()}
        print(json.dumps({"per_second": told, "ratio": round(median(ratios), 2), "spread": [min(ratios), max(ratios)]}))
    finally:
        hello.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])

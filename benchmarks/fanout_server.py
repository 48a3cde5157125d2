"""The whole service with sse-starlette and bare transports beside it, in one process.

`python -m benchmarks.fanout_server PORT FOLDER`. `POST /flood` writes events to a queued build, in transactions;
`POST /usual/flood` puts the same text into one queue per watcher; `POST /raw/flood` writes it to every socket, which
is the floor.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import cast

import psutil
import structlog
import uvicorn
from fastapi import FastAPI
from sse_starlette import EventSourceResponse, ServerSentEvent

from app.builds.feed import encode
from app.builds.parts import Parts
from app.db.events import advance
from app.main import create_app
from app.settings import Settings
from trtforge.contract.events import Log

WORDS = "a warning of about the length that builders like to write, with a time in it: "
TOGETHER = 10  # events
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def create(folder: Path) -> FastAPI:
    app = create_app(Settings(data_dir=folder / "data", lock_dir=folder / "locks", slots=1))
    parts = app.state.service.parts
    watching: dict[str, Callable[[], int]] = {"ours": lambda: int(app.state.running.feeds.watchers)}
    _add_ours(app, parts)
    watching["usual"] = _add_usual(app, parts)
    watching["raw"] = _add_raw(app, parts)

    @app.get("/watching")
    async def watchers(name: str) -> int:
        return watching[name]()

    @app.get("/memory")
    async def memory() -> int:
        return int(psutil.Process().memory_info().rss)

    return app


def _add_ours(app: FastAPI, parts: Parts) -> None:
    @app.post("/flood")
    def flood(build_id: str, count: int, pause_s: float) -> float:
        """Return when the first was written, on the clock that all processes share.

        Those without a pause go ten to a transaction, as a supervisor stores what a builder says in a moment.
        """
        began, together = monotonic(), 1 if pause_s else TOGETHER
        for _ in range(0, count, together):
            with parts.database.write() as tx:
                advance(tx, build_id, [_event(parts) for _ in range(together)])
            parts.bus.notify(build_id)
            sleep(pause_s)
        return began


def _event(parts: Parts) -> Log:
    return Log(at=parts.now(), level="warning", text=f"{WORDS}t={monotonic():.6f}")


def _add_usual(app: FastAPI, parts: Parts) -> Callable[[], int]:
    queues: set[asyncio.Queue[Log | None]] = set()

    async def coming(queue: "asyncio.Queue[Log | None]") -> AsyncIterator[ServerSentEvent]:
        while (event := await queue.get()) is not None:
            yield ServerSentEvent(event=event.type, data=event.model_dump_json(), sep="\n")

    @app.get("/usual/events")
    async def events() -> EventSourceResponse:
        queue: asyncio.Queue[Log | None] = asyncio.Queue()
        queues.add(queue)
        return EventSourceResponse(coming(queue), sep="\n")

    def say(event: Log | None) -> None:
        for queue in queues:
            queue.put_nowait(event)

    _add_flood(app, parts, "usual", say)

    @app.post("/usual/end")
    async def end() -> None:
        say(None)
        queues.clear()

    return lambda: len(queues)


def _add_raw(app: FastAPI, parts: Parts) -> Callable[[], int]:
    transports: set[asyncio.WriteTransport] = set()

    class Watched(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            opened = cast(asyncio.WriteTransport, transport)  # uvloop's does not inherit from it
            opened.write(HEAD)
            transports.add(opened)

    @app.post("/raw/listen")
    async def listen() -> int:
        server = await asyncio.get_running_loop().create_server(Watched, "127.0.0.1", 0, backlog=2048)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def say(event: Log) -> None:
        sent = encode(event.type, event.model_dump_json()).sse
        for transport in transports:
            transport.write(sent)

    _add_flood(app, parts, "raw", say)

    @app.post("/raw/end")
    async def end() -> None:
        for transport in transports:
            with suppress(RuntimeError):
                transport.close()
        transports.clear()

    return lambda: len(transports)


def _add_flood(app: FastAPI, parts: Parts, name: str, say: Callable[[Log], None]) -> None:
    @app.post(f"/{name}/flood")
    async def flood(count: int, pause_s: float) -> float:
        began = monotonic()
        for number in range(count):
            due = began + number * pause_s
            await asyncio.sleep(max(0.0, due - monotonic()))
            say(_event(parts))
        return began


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    uvicorn.run(create(Path(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[1]), log_level="error", backlog=2048)

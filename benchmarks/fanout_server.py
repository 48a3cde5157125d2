"""The whole service with a stream of FastAPI's own beside it, in one process.

`python -m benchmarks.fanout_server PORT FOLDER`. `POST /flood` writes events to a queued build, one transaction
each; `POST /usual/flood` puts the same text into one queue per watcher.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterable
from pathlib import Path
from time import monotonic, sleep

import structlog
import uvicorn
from fastapi import FastAPI
from fastapi.sse import EventSourceResponse

from app.builds.parts import Parts
from app.db.events import advance
from app.main import create_app
from app.settings import Settings
from trtforge.contract.events import Log

WORDS = "a warning of about the length that builders like to write, with a time in it: "


def create(folder: Path) -> FastAPI:
    app = create_app(Settings(data_dir=folder / "data", lock_dir=folder / "locks", slots=1))
    _add_ours(app, app.state.service.parts)
    _add_usual(app, app.state.service.parts)
    return app


def _add_ours(app: FastAPI, parts: Parts) -> None:
    @app.post("/flood")
    def flood(build_id: str, count: int, pause_s: float) -> float:
        """Return when the first was written, on the clock that all processes share."""
        began = monotonic()
        for _ in range(count):
            with parts.database.write() as tx:
                advance(tx, build_id, [_event(parts)])
            parts.bus.notify(build_id)
            sleep(pause_s)
        return began


def _event(parts: Parts) -> Log:
    return Log(at=parts.now(), level="warning", text=f"{WORDS}t={monotonic():.6f}")


def _add_usual(app: FastAPI, parts: Parts) -> None:
    queues: set[asyncio.Queue[Log | None]] = set()

    @app.get("/usual/events", response_class=EventSourceResponse)
    async def events() -> AsyncIterable[Log]:
        queue: asyncio.Queue[Log | None] = asyncio.Queue()
        queues.add(queue)
        while (event := await queue.get()) is not None:
            yield event

    @app.post("/usual/flood")
    async def flood(count: int, pause_s: float) -> float:
        began = monotonic()
        for _ in range(count):
            event = _event(parts)
            for queue in queues:
                queue.put_nowait(event)
            await asyncio.sleep(pause_s)
        return began

    @app.post("/usual/end")
    async def end() -> None:
        for queue in queues:
            queue.put_nowait(None)
        queues.clear()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    uvicorn.run(create(Path(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")

"""Many watchers of one build: deliveries a second, and how late an event comes, beside FastAPI's own event stream."""

import json
from time import sleep
from typing import Any

import httpx

from app.worker.locks import try_lock
from benchmarks.models import chain
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope, heard, server, start
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.spec import BuildSpec

WATCHERS = 200
FLOOD = 200  # events as fast as they can be written
PACED, PAUSE_S = 40, 0.05  # then 20 events a second
SETTLE_S = 1.5  # until every watcher is connected
GOAL = 2.5


def measure(scope: Scope) -> list[Line]:
    rates: dict[str, list[float]] = {"ours": [], "usual": []}
    late: dict[str, list[float]] = {"ours": [], "usual": []}
    with server("fanout_server", scope.folder) as port, Client(f"http://127.0.0.1:{port}") as client:
        client.readiness(wait_s=60)
        held = try_lock(scope.folder / "locks" / "cpu-0.lock", {"build": "bench", "attempt": 0})
        model = client.upload(chain(scope.folder / "chain.onnx", 10)).digest
        for number in range(scope.rounds(3, 1)):
            for count, pause_s in ((FLOOD, 0.0), (PACED, PAUSE_S)):
                for name, found in _round(port, client, model, 2 * number + (pause_s > 0), count, pause_s).items():
                    if pause_s:
                        late[name].append(found["latency"]["0.99"] * 1000)
                    else:
                        rates[name].append(found["timed"] / (found["last_at"] - found["began"]))
        if held:
            held.release()
    return [_rates(rates), _late(late)]


def _round(port: int, client: Client, model: str, number: int, count: int, pause_s: float) -> dict[str, dict[str, Any]]:
    asked = Submit(model=model, spec=BuildSpec(workspace_bytes=(1 << 30) + (number << 20)))
    build = client.submit(asked).build
    if build is None or build.state != "queued":
        raise RuntimeError("the build is not held")
    flood = {"count": count, "pause_s": pause_s}
    ours = _watched(port, f"/v1/builds/{build.id}/events", "/flood", {"build_id": build.id, **flood}, count)
    client.cancel(build.id)
    found = {"ours": _told(ours)}
    usual = _watched(port, "/usual/events", "/usual/flood", flood, count)
    httpx.post(f"http://127.0.0.1:{port}/usual/end").raise_for_status()
    return {**found, "usual": _told(usual)}


def _watched(port: int, watch: str, flood: str, params: dict[str, Any], count: int) -> tuple[Any, float, int]:
    """Open the streams, send the events, and return the crowd, when that began, and how many deliveries are due."""
    crowd = start("load", "crowd", json.dumps({"port": port, "watch": watch, "watchers": WATCHERS}))
    sleep(SETTLE_S)
    began = httpx.post(f"http://127.0.0.1:{port}{flood}", params=params, timeout=120).raise_for_status().json()
    return crowd, began, count * WATCHERS


def _told(watched: tuple[Any, float, int]) -> dict[str, Any]:
    crowd, began, due = watched
    found: dict[str, Any] = heard(crowd)
    if found["timed"] != due:
        raise RuntimeError(f"{found['timed']} of {due} deliveries came")
    return {**found, "began": began}


def _rates(rates: dict[str, list[float]]) -> Line:
    ours, usual = Spread.of(rates["ours"]), Spread.of(rates["usual"])
    return Line(
        what=f"deliveries to {WATCHERS} watchers",
        unit="/s",
        ours=ours,
        beside="FastAPI's EventSourceResponse",
        theirs=usual,
        goal=f"at least {GOAL}x sse-starlette, which is not here",
        met=None,
        how=f"{FLOOD} events as fast as they are written: ours one SQLite transaction each, then read, encoded once, and sent "
        "in batches when a watcher is behind; the usual way one queue per watcher. Until the last delivery.",
    )


def _late(late: dict[str, list[float]]) -> Line:
    return Line(
        what=f"event to {WATCHERS} watchers, p99",
        unit="ms",
        ours=Spread.of(late["ours"]),
        beside="FastAPI's EventSourceResponse",
        theirs=Spread.of(late["usual"]),
        goal="",
        met=None,
        how=f"{1 / PAUSE_S:g} events a second, from before it is written to its arrival in another process; p99 per round.",
    )

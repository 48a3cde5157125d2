"""A thousand watchers of one build: deliveries a second, how late an event comes, and the memory they take."""

import json
from collections import defaultdict
from time import monotonic, sleep
from typing import Any

import httpx

from app.worker.locks import try_lock
from benchmarks.models import chain
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope, heard, server, start
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.spec import BuildSpec

WATCHERS = 1000
FLOOD = 100  # events as fast as they can be written
PACED, PAUSE_S = 60, 0.05  # then 20 events a second
SETTLE_S = 60.0  # at most, until every watcher has its stream
PAUSE_TO_READ_S = 3.0
GOAL, LATE_GOAL, MEMORY_GOAL = 2.5, 1.5, 150.0
MIB = 1 << 20


def measure(scope: Scope) -> list[Line]:
    rates: dict[str, list[float]] = defaultdict(list)
    late: dict[str, list[float]] = defaultdict(list)
    memory: list[float] = []
    with server("fanout_server", scope.folder) as port, Client(f"http://127.0.0.1:{port}") as client:
        client.readiness(wait_s=60)
        held = try_lock(scope.folder / "locks" / "cpu-0.lock", {"build": "bench", "attempt": 0})
        crowds = _Crowds(port, client, client.upload(chain(scope.folder / "chain.onnx", 10)).digest)
        for _ in range(scope.rounds(3, 1)):
            for name in ("ours", "usual", "raw"):
                found = crowds.watch(name, FLOOD, 0.0)
                rates[name].append(found["timed"] / (found["last_at"] - found["began"]))
                if name == "ours":
                    memory.append(found["memory"] / MIB)
                found = crowds.watch(name, PACED, PAUSE_S)
                late[name].append(found["latency"]["0.99"] * 1000)
        if held:
            held.release()
    return [_rate(rates), *_late(late), _memory(memory)]


class _Crowds:
    """Crowds of watchers, one after the other, each of a stream of its kind."""

    def __init__(self, port: int, client: Client, model: str) -> None:
        self._port, self._client, self._model = port, client, model
        self._url = f"http://127.0.0.1:{port}"
        self._raw_port = self._post("/raw/listen")
        self._number = 0

    def watch(self, name: str, count: int, pause_s: float) -> dict[str, Any]:
        """Return what the crowd saw, when the first event was written, and the memory it took (bytes)."""
        flood: dict[str, Any] = {"count": count, "pause_s": pause_s}
        if name == "ours":
            build = self._held_build()
            crowd, memory = self._open(name, self._port, f"/v1/builds/{build}/events")
            began = self._post("/flood", build_id=build, **flood)
            self._client.cancel(build)
        else:
            crowd, memory = self._open(name, self._raw_port if name == "raw" else self._port, f"/{name}/events")
            began = self._post(f"/{name}/flood", **flood)
            sleep(1.0)  # what is still on its way is counted below
            self._post(f"/{name}/end")
        found: dict[str, Any] = heard(crowd)
        if found["timed"] != count * WATCHERS:
            raise RuntimeError(f"{name}: {found['timed']} of {count * WATCHERS} deliveries came")
        return {**found, "began": began, "memory": memory}

    def _open(self, name: str, port: int, path: str) -> tuple[Any, int]:
        """Return a crowd that has settled: every watcher has its stream, and has read what it began with."""
        before = self._memory()
        crowd = start("load", "crowd", json.dumps({"port": port, "watch": path, "watchers": WATCHERS}))
        end = monotonic() + SETTLE_S
        while httpx.get(f"{self._url}/watching", params={"name": name}).json() < WATCHERS and monotonic() < end:
            sleep(0.2)
        sleep(PAUSE_TO_READ_S)
        return crowd, self._memory() - before

    def _held_build(self) -> str:
        self._number += 1
        asked = Submit(model=self._model, spec=BuildSpec(workspace_bytes=(1 << 30) + (self._number << 20)))
        build = self._client.submit(asked).build
        if build is None or build.state != "queued":
            raise RuntimeError("the build is not held")
        return build.id

    def _memory(self) -> int:
        return int(httpx.get(f"{self._url}/memory").json())

    def _post(self, path: str, **params: Any) -> Any:
        return httpx.post(f"{self._url}{path}", params=params, timeout=300).raise_for_status().json()


def _rate(rates: dict[str, list[float]]) -> Line:
    ours, usual, raw = (Spread.of(rates[name]) for name in ("ours", "usual", "raw"))
    return Line(
        what=f"deliveries to {WATCHERS:,} watchers",
        unit="/s",
        ours=ours,
        beside="sse-starlette",
        theirs=usual,
        goal=f"at least {GOAL}x",
        met=ours.median >= GOAL * usual.median,
        how=f"{FLOOD} events as fast as they are written: ours ten to an SQLite transaction, then read, encoded once, sent in "
        f"batches to who is behind; beside it one queue per watcher. Bare transports in the same process: {raw} /s.",
    )


def _late(late: dict[str, list[float]]) -> list[Line]:
    ours, usual, raw = (Spread.of(late[name]) for name in ("ours", "usual", "raw"))
    how = f"{1 / PAUSE_S:g} events a second, from before one is written to its arrival in another process."
    what = f"event to {WATCHERS:,} watchers, p99"
    return [
        Line(
            what,
            "ms",
            ours,
            "bare transports",
            raw,
            f"at most {LATE_GOAL}x",
            ours.median <= LATE_GOAL * raw.median,
            how,
        ),
        Line(what, "ms", ours, "sse-starlette", usual, "", None, how),
    ]


def _memory(memory: list[float]) -> Line:
    taken = Spread.of(memory)
    goal = f"at most {MEMORY_GOAL:g} MiB"
    how = "Growth of the service's resident memory once they are connected; the first round is the largest, memory is reused."
    return Line(f"memory of {WATCHERS:,} watchers", "MiB", taken, "", None, goal, taken.high <= MEMORY_GOAL, how)

"""Probes while a build runs and a crowd waits for it and watches it; and how late heartbeats come in its silence."""

import json
from collections.abc import Sequence
from time import monotonic
from typing import Any

from benchmarks.report import Line, Spread, percentile
from benchmarks.scope import Scope, heard, load, start
from benchmarks.service import Service, light_model
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.spec import BuildSpec

PATHS = ("/livez", "/readyz")
WAITERS, WATCHERS = 50, 50
EVERY_S = 0.01
PROBED_S = 8.0  # from the builder's first callback; what is sent after the build's end does not count
P99_GOAL_MS = 50.0
HEARTBEAT_S = 1.0  # shorter than the default, so that one build has many

Took = dict[str, list[float]]  # path → seconds


def measure(scope: Scope) -> list[Line]:
    idle: Took = {path: [] for path in PATHS}
    busy: Took = {path: [] for path in PATHS}
    gaps: list[float] = []
    with Service(scope.folder, heartbeat_s=str(HEARTBEAT_S)) as service, Client(service.url) as client:
        model = client.upload(light_model("densenet121")).digest
        for number in range(scope.rounds(3, 1)):
            _add(idle, load("probe", **_probing(service, PROBED_S / 2)), float("inf"))
            gaps += _crowded(service, client, model, number, busy)
    return [*(_latency(path, busy[path], idle[path]) for path in PATHS), _gaps(gaps)]


def _probing(service: Service, seconds: float) -> dict[str, Any]:
    return {"port": service.port, "paths": PATHS, "every_s": EVERY_S, "seconds": seconds}


def _crowded(service: Service, client: Client, model: str, number: int, busy: Took) -> list[float]:
    """Build once under watch, add to `busy`, and return the gaps between heartbeats."""
    submitted = client.submit(Submit(model=model, spec=BuildSpec(workspace_bytes=(8 << 30) + (number << 20))))
    if submitted.build is None:
        raise RuntimeError("nothing to build")
    path = f"/v1/builds/{submitted.build.id}"
    asked = {"watch": f"{path}/events", "watchers": WATCHERS, "wait": path, "waiters": WAITERS, "port": service.port}
    crowd, probing = start("load", "crowd", json.dumps(asked)), None
    for event in client.events(submitted.build.id):
        if event.type == "phase_started" and probing is None:
            probing = start("load", "probe", json.dumps(_probing(service, PROBED_S)))
    ended = monotonic()
    if event.type != "succeeded" or probing is None:
        raise RuntimeError(f"the build ended with {event.type}")
    _add(busy, heard(probing), ended)
    watched = heard(crowd)
    if watched["ended_well"] != WATCHERS or set(watched["waits"]) != {200}:
        raise RuntimeError(f"{watched['ended_well']} streams ended well; waits were answered {set(watched['waits'])}")
    return list(watched["gaps"])


def _add(into: Took, found: dict[str, list[list[float]]], before: float) -> None:
    for path, probes in found.items():
        into[path] += [took for sent, took in probes if sent < before]


def _latency(path: str, busy: Sequence[float], idle: Sequence[float]) -> Line:
    ours, theirs = _p99(busy), _p99(idle)
    return Line(
        what=f"{path} p99 while {WAITERS} wait and {WATCHERS} watch",
        unit="ms",
        ours=ours,
        beside="the same on an idle service",
        theirs=theirs,
        goal=f"below {P99_GOAL_MS:g} ms",
        met=ours.median < P99_GOAL_MS,
        how="p99 (p50..slowest); a new connection per probe, one every 10 ms, from a process of its own; the crowd waits "
        "with Prefer: wait=60 and streams, from another one, while light_densenet121 is built.",
    )


def _p99(took: Sequence[float]) -> Spread:
    return Spread(percentile(took, 0.99) * 1000, percentile(took, 0.5) * 1000, max(took) * 1000, len(took))


def _gaps(gaps: Sequence[float]) -> Line:
    return Line(
        what="gap between heartbeats",
        unit="s",
        ours=Spread.of(gaps),
        beside="the interval",
        theirs=Spread(HEARTBEAT_S, HEARTBEAT_S, HEARTBEAT_S, 1),
        goal=f"never over {2 * HEARTBEAT_S:g} s",
        met=max(gaps) <= 2 * HEARTBEAT_S,
        how=f"TRTFORGE_HEARTBEAT_S={HEARTBEAT_S:g}; every gap on each of the {WATCHERS} streams above; the first begins "
        "with the stream. Most of that build is silent.",
    )

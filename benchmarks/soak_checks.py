"""What must hold after a soak, and its figures."""

import json
import time
from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

import httpx

from benchmarks.soak_actions import Ledger
from tests.conftest import Server
from tests.system.soundness import all_of, assert_sound

ANSWERED = {"served", "failed", "cancelled", "withdrawn"}
MARGIN = 2.0  # seconds a cancel may take beside the grace
PASSING = {"builder_killed", "worker_lost"}  # the only ways to fail here: every model is good


def check(server: Server, ledger: Ledger, settle: float) -> dict[str, object]:
    """Wait for everything to end and return the figures. Raises `AssertionError` with what was violated."""
    with httpx.Client(base_url=server.url, timeout=30) as http:
        _settled(http, settle)
        assert_sound(server)
        builds = all_of(http, "/v1/builds")
        requests = {r: http.get(f"/v1/requests/{r}") for r in set(ledger.requests)}
        _none_lost(requests, ledger)
        for build in builds:
            assert build["failure"] is None or build["failure"]["code"] in PASSING, build["failure"]
        _one_at_a_time([_lifetimes(http, b) for b in builds])
        engines = all_of(http, "/v1/engines")  # each was fetched and compared by `assert_sound`
        cancels = _cancels(builds, float(server.settings["cancel_grace_s"]))
    states = [b["state"] for b in builds]
    return {
        "builds": len(builds),
        **{s: states.count(s) for s in ("succeeded", "failed", "cancelled")},
        "requests": len(requests),
        "requests lost": 0,
        "cancels of running builds": len(cancels),
        "cancel, worst (s)": max(cancels, default=None),
        "cancel, median (s)": round(median(cancels), 3) if cancels else None,
        "kills of builders survived": ledger.builders_killed,
        "kills of servers survived": ledger.servers_killed,
        "stops of servers": ledger.servers_stopped,
        "withdrawals": len(ledger.withdrawals),
        "streams left": len(ledger.streams),
        "fetches in two parts": len(ledger.fetched),
        "engines verified": len(engines),
    }


def _settled(http: httpx.Client, seconds: float) -> None:
    end = time.monotonic() + seconds
    while live := [b["id"] for state in ("queued", "running") for b in all_of(http, "/v1/builds", state=state)]:
        assert time.monotonic() < end, f"after {seconds:.0f} s these have not ended: {live}"
        time.sleep(0.5)


def _none_lost(requests: dict[str, httpx.Response], ledger: Ledger) -> None:
    lost = [r for r, answer in requests.items() if answer.status_code != 200 or answer.json()["state"] not in ANSWERED]
    assert not lost, f"{len(lost)} requests lost: {lost[:5]}"
    kept = [r for r in ledger.withdrawals if requests[r].json()["state"] != "withdrawn"]
    assert not kept, f"withdrawn, but not so: {kept[:5]}"


def _lifetimes(http: httpx.Client, build: dict[str, Any]) -> tuple[str, list[tuple[datetime, datetime]]]:
    """Return the key, and from when to when each attempt ran, as the stored events say."""
    answer = http.get(f"/v1/builds/{build['id']}/events", headers={"Accept": "application/x-ndjson"})
    events = [e for e in map(json.loads, answer.text.splitlines()) if "seq" in e and e["type"] != "snapshot"]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1)), build["id"]
    assert events[-1]["type"] == build["state"], (build["id"], events[-1])
    begun: datetime | None = None
    spans = []
    for event in events:
        at = datetime.fromisoformat(event["at"])
        if event["type"] == "started":
            assert begun is None, f"{build['id']} started twice at once"
            begun = at
        elif begun and event["type"] in ("requeued", "succeeded", "failed", "cancelled"):
            spans.append((begun, at))
            begun = None
    return build["engine_key"], spans


def _one_at_a_time(lifetimes: list[tuple[str, list[tuple[datetime, datetime]]]]) -> None:
    by_key: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for key, spans in lifetimes:
        by_key[key] += spans
    for key, spans in by_key.items():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert end <= start, f"two builds of {key} ran at once"


def _cancels(builds: list[dict[str, Any]], grace: float) -> list[float]:
    """Return the seconds of every cancel that reached a running builder, all of them in bounds."""
    stopped = [
        b["cancel"]
        for b in builds
        if b["cancel"] and b["cancel"]["ended_by"] in ("monitor", "killed", "between_stages")
    ]
    for cancel in stopped:
        assert cancel["seconds"] <= grace + MARGIN, cancel
    return [c["seconds"] for c in stopped]

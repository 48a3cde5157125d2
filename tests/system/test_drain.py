"""SIGTERM and SIGINT: no new work, a little time for what runs, the rest goes back to the queue, exit 0."""

import json
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import httpx
import pytest

from tests.conftest import Server
from tests.system.api import Api, assert_consistent, attempts_logged, children, eventually, gone
from tests.system.models import SLOW, relus


def send(server: Server, number: int) -> None:
    assert server.process is not None
    server.process.send_signal(number)


def until_draining(api: Api) -> None:
    """The signal is handled on the event loop: at once, but not in no time."""
    eventually(lambda: api.http.get("/readyz").status_code == 503, 2)


def exit_code(server: Server, seconds: float) -> int:
    assert server.process is not None
    return server.process.wait(seconds)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_build_goes_back_to_the_queue_and_the_next_start_builds_it(
    number: int, make_server: Callable[..., Server]
) -> None:
    server = make_server(drain_s="2", cancel_grace_s="0.5", slots="1")
    api = Api(server)
    build, waiting = api.start(relus(SLOW)), api.start(relus())
    api.building(build)
    builders = children(server)
    send(server, number)
    asked = monotonic()
    until_draining(api)
    answer = api.http.get("/readyz").json()
    assert answer["reasons"] == {"draining": "the service is shutting down"}
    assert api.http.get("/livez").status_code == 200
    assert api.build(build)["state"] == "running"  # it has drain_s to end by itself
    assert exit_code(server, 10) == 0
    assert monotonic() - asked > 2
    assert gone(builders)

    server.start()
    api.until(build, lambda b: b["attempt"] == 2)
    handed_back = [e for e in _stored_now(api, build) if e["type"] == "requeued"]
    assert [e["reason"] for e in handed_back] == ["the worker is shutting down"]
    assert api.build(waiting)["state"] == "queued"  # nothing was claimed while draining
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    assert api.ended(build)["state"] == "cancelled"
    assert api.ended(waiting)["state"] == "succeeded"
    assert attempts_logged(server) == 3
    assert_consistent(api)


def _stored_now(api: Api, build: str) -> list[dict[str, str]]:
    """Return the events of a running build so far: a stream's snapshot says how many there are."""
    found: list[dict[str, str]] = []
    with api.http.stream("GET", f"/v1/builds/{build}/events", headers={"Accept": "application/x-ndjson"}) as answer:
        lines = map(json.loads, answer.iter_lines())
        last = next(lines)["seq"]
        for event in lines:
            if "seq" in event:
                found.append(event)
                if event["seq"] == last:
                    return found
    return found


def test_a_build_that_ends_within_the_drain_is_kept(make_server: Callable[..., Server]) -> None:
    server = make_server(drain_s="60")
    api = Api(server)
    build = api.start(relus(1500))
    api.building(build)
    send(server, signal.SIGTERM)
    assert exit_code(server, 60) == 0
    server.start()
    ended = api.build(build)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
    assert_consistent(api)


def test_deletes_are_served_while_draining(make_server: Callable[..., Server]) -> None:
    server = make_server(drain_s="60", cancel_grace_s="0.5")
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    send(server, signal.SIGTERM)
    until_draining(api)
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    assert exit_code(server, 8) == 0  # it was the only build: nothing is left to wait for
    server.start()
    ended = api.build(build)
    assert (ended["state"], ended["attempt"]) == ("cancelled", 1)
    assert ended["cancel"]["ended_by"] in ("between_stages", "monitor", "killed")


def test_a_blocking_wait_is_answered_when_the_service_drains(make_server: Callable[..., Server]) -> None:
    server = make_server(drain_s="0.2", cancel_grace_s="0.5")
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            lambda: httpx.get(f"{server.url}/v1/builds/{build}", headers={"Prefer": "wait=60"}, timeout=60)
        )
        send(server, signal.SIGTERM)
        answer = waiting.result(15)
    assert answer.status_code == 200
    assert answer.json()["state"] in ("running", "queued")
    assert exit_code(server, 8) == 0


def test_asked_twice_the_server_ends_at_once(make_server: Callable[..., Server]) -> None:
    server = make_server(drain_s="60", cancel_grace_s="60")
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    builders = children(server)
    send(server, signal.SIGTERM)
    until_draining(api)
    send(server, signal.SIGTERM)
    exit_code(server, 5)
    assert gone(builders)
    server.start()
    api.until(build, lambda b: b["attempt"] == 2, 5)  # not after a lease: the server signed off

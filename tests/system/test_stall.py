"""A builder that neither speaks nor computes: seen, said, and ended only for those who asked for that."""

import json
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.conftest import Server
from tests.system.api import Api, assert_consistent, child_of, gone
from tests.system.models import relus


@pytest.fixture
def quick(make_server: Callable[..., Server]) -> Api:
    """A server that calls a build stalled soon, but only when all samples it judges by are idle."""
    return Api(make_server(slots="1", heartbeat_s="0.5", stalled_after_s="3", cancel_grace_s="0.5"))


def halted(api: Api, build: str) -> psutil.Process:
    """Stop the builder of the only build, as a debugger or a driver would."""
    api.building(build)
    builder = child_of(api.server)
    builder.suspend()
    return builder


def until_stalled(api: Api, build: str) -> dict[str, Any]:
    """Return the first `stalled` of the stream."""
    end = time.monotonic() + 30
    with api.http.stream("GET", f"/v1/builds/{build}/events", headers={"Accept": "application/x-ndjson"}) as stream:
        for line in stream.iter_lines():
            event: dict[str, Any] = json.loads(line)
            if event["type"] == "stalled":
                return event
            assert time.monotonic() < end, event
    raise AssertionError("the stream ended")


def test_a_halted_builder_is_idle_and_stalled_and_goes_on_when_it_is_let(quick: Api) -> None:
    build = quick.start(relus(800))
    builder = halted(quick, build)
    assert until_stalled(quick, build)["silent_s"] >= 3
    seen = quick.build(build)
    assert seen["state"] == "running"
    assert seen["progress"]["activity"] == "idle"
    builder.resume()
    ended = quick.ended(build)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
    assert_consistent(quick)


def test_a_stall_ends_the_build_for_who_asked_and_not_for_others(quick: Api) -> None:
    model = quick.upload(relus(800))
    tired = quick.submit(model, stall_timeout_s=2)
    build = tired["build"]["id"]
    patient = quick.submit(model)
    builder = halted(quick, build)
    wait = {"Prefer": "wait=60"}
    request = quick.http.get(f"/v1/requests/{tired['request_id']}", headers=wait).json()
    assert (request["state"], request["failure"]["code"]) == ("failed", "builder_stalled")
    going = quick.build(build)
    assert (going["state"], going["requests"]) == ("running", 1)
    builder.resume()
    assert quick.http.get(f"/v1/requests/{patient['request_id']}", headers=wait).json()["state"] == "served"


def test_a_stall_that_nobody_waits_out_is_builder_stalled_and_the_child_is_killed(quick: Api) -> None:
    build = quick.start(relus(800), stall_timeout_s=2)
    builder = halted(quick, build)
    ended = quick.ended(build, 30)
    assert (ended["state"], ended["failure"]["code"], ended["failure"]["retryable"]) == (
        "failed",
        "builder_stalled",
        True,
    )
    assert gone([builder])
    retried = quick.submit(ended["model"])
    assert retried["disposition"] == "created"  # it may pass: not remembered
    assert quick.ended(retried["build"]["id"])["state"] == "succeeded"
    assert_consistent(quick)


def test_a_builder_that_only_computes_in_silence_is_not_stalled(quick: Api) -> None:
    build = quick.start(relus(3000), stall_timeout_s=1.5)
    silent = quick.until(build, lambda b: b["progress"] and b["progress"]["silent_s"] > 3)
    assert silent["progress"]["activity"] == "working"
    assert quick.http.delete(f"/v1/builds/{build}").status_code == 202
    assert quick.ended(build)["state"] == "cancelled"

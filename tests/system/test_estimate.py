"""Estimates of real builds: none before the first, then by what was built here, told everywhere."""

import json
from collections.abc import Callable

import pytest

from tests.conftest import Server
from tests.system.api import Api, Json
from tests.system.models import relus

LENGTH = 800  # Relus: seconds, so that a running build can be looked at


@pytest.fixture
def fresh(make_server: Callable[..., Server], database_url: str) -> Api:
    return Api(make_server(database_url=database_url, heartbeat_s="0.2", slots="1"))


def watched(api: Api, model: str, number: int) -> tuple[list[Json], Json]:
    """Build the engine of that number; return the live estimates on its stream in order, and the build at its end."""
    spec = {"workspace_bytes": (1 << 30) + number}
    build = api.submit(model, spec)["build"]["id"]
    api.building(build)
    with api.http.stream("GET", f"/v1/builds/{build}/events", headers={"Accept": "application/x-ndjson"}) as stream:
        events = [json.loads(line) for line in stream.iter_lines()]
    live = [
        e["build"]["progress"] if e["type"] == "snapshot" else e
        for e in events
        if e["type"] in ("snapshot", "heartbeat")
    ]
    ended = api.ended(build)
    assert ended["state"] == "succeeded"
    assert ended["progress"] is None
    return [p["estimate"] for p in live if p], ended


def test_estimates_come_from_what_was_built_here(fresh: Api) -> None:
    model = fresh.upload(relus(LENGTH))
    first, _ = watched(fresh, model, 0)
    assert first
    assert not any(first)

    for number in (1, 2):
        told, _ = watched(fresh, model, number)
        said = [e for e in told if e]  # one that the build outlived is absent again
        assert said
        many = "1 build" if number == 1 else "2 builds"
        assert {e["basis"] for e in said} == {f"{many} of this model on this target"}
        for estimate in said:
            low, high = estimate["remaining_s"]
            assert 0 <= low <= high
            assert estimate["total_s"][0] <= estimate["total_s"][1]

    other, _ = watched(fresh, fresh.upload(relus(LENGTH + 50)), 0)
    assert {e["basis"] for e in other if e} == {"3 builds with similar node counts on this target"}

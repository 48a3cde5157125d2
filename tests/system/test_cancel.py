"""DELETE at any moment: bounded, and nothing is left."""

from collections.abc import Callable
from time import monotonic

import pytest

from tests.conftest import Server, light
from tests.system.api import Api, assert_consistent, children, gone, staged
from tests.system.models import SLOW, relus

GRACE = 2.0  # seconds
MARGIN = 2.0  # seconds the service may take besides the grace


def test_delete_in_a_silent_window_is_bounded_and_leaves_nothing(make_server: Callable[..., Server]) -> None:
    server = make_server(cancel_grace_s=str(GRACE), slots="1")
    api = Api(server)
    build = api.start(light("densenet121"))
    waiting = api.start(relus())
    api.until(build, lambda b: b["stage"] == "build" and b["progress"]["silent_s"] > 1.5)
    builders = children(server)
    assert len(builders) == 1

    asked = monotonic()
    answer = api.http.delete(f"/v1/builds/{build}")
    assert answer.status_code == 202
    assert answer.json()["cancel"]["ended_by"] is None
    ended = api.ended(build, GRACE + MARGIN)
    assert monotonic() - asked < GRACE + MARGIN
    assert ended["state"] == "cancelled"
    assert ended["cancel"]["ended_by"] in ("monitor", "killed")
    assert 0 < ended["cancel"]["seconds"] < GRACE + MARGIN
    assert gone(builders)

    assert api.until(waiting, lambda b: b["state"] != "queued", 2)
    assert api.ended(waiting)["state"] == "succeeded"
    assert children(server) == []
    assert_consistent(api)


def test_the_monitor_ends_a_build_that_still_calls_back(make_server: Callable[..., Server]) -> None:
    api = Api(make_server(cancel_grace_s="30"))  # so long that a kill would show
    build = api.start(light("shufflenet"))
    api.building(build)
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    ended = api.ended(build, 25)
    assert ended["state"] == "cancelled"
    assert ended["cancel"]["ended_by"] in ("monitor", "between_stages")
    assert_consistent(api)


def test_delete_asked_twice_is_the_same_and_after_the_end_is_refused(make_server: Callable[..., Server]) -> None:
    api = Api(make_server(cancel_grace_s="1"))
    build = api.start(relus(SLOW))
    api.building(build)
    first = api.http.request("DELETE", f"/v1/builds/{build}", json={"reason": "not needed"})
    second = api.http.request("DELETE", f"/v1/builds/{build}", json={"reason": "other words"})
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json()["cancel"]["reason"] == "not needed"
    assert second.json()["cancel"]["requested_at"] == first.json()["cancel"]["requested_at"]
    api.ended(build)
    third = api.http.delete(f"/v1/builds/{build}")
    assert (third.status_code, third.json()["code"]) == (409, "already_ended")
    kinds = [e["type"] for e in api.events(build)]
    assert kinds.count("cancel_requested") == 1
    assert kinds.count("cancelled") == 1
    assert kinds[-1] == "cancelled"


def test_a_queued_build_is_cancelled_before_it_starts(make_server: Callable[..., Server]) -> None:
    api = Api(make_server(slots="1", cancel_grace_s="0.5"))
    running, queued = api.start(relus(SLOW)), api.start(relus(SLOW))
    api.building(running)
    ended = api.http.delete(f"/v1/builds/{queued}").json()
    assert ended["state"] == "cancelled"
    assert ended["cancel"]["ended_by"] == "before_start"
    assert ended["cancel"]["seconds"] == 0
    assert (ended["attempt"], ended["started_at"]) == (0, None)
    assert api.http.get(f"/v1/builds/{queued}/log").text == ""
    api.http.delete(f"/v1/builds/{running}")
    api.ended(running)


@pytest.mark.parametrize("stage", ["prepare", "parse", "build"])
def test_delete_at_every_stage_ends_cancelled(stage: str, calm: Api) -> None:
    build = calm.start(relus(SLOW))
    calm.until(build, lambda b: b["stage"] and _reached(b["stage"], stage))
    assert calm.http.delete(f"/v1/builds/{build}").status_code == 202
    assert calm.ended(build)["state"] == "cancelled"
    assert staged(calm.server.data) == []


def _reached(now: str, stage: str) -> bool:
    order = ["prepare", "parse", "build"]
    return order.index(now) >= order.index(stage)


def test_timeouts_are_told_apart_from_cancels(make_server: Callable[..., Server]) -> None:
    api = Api(make_server(slots="1", cancel_grace_s="0.5"))
    running = api.start(relus(SLOW), run_timeout_s=2)
    queued = api.start(relus(), queue_timeout_s=0.5)
    late, never = api.ended(running), api.ended(queued)
    assert (late["state"], late["failure"]["code"], late["cancel"]) == ("failed", "run_timeout", None)
    assert (never["state"], never["failure"]["code"], never["attempt"]) == ("failed", "queue_timeout", 0)
    assert_consistent(api)

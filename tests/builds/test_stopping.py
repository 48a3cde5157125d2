"""Who may stop a build, what is recorded, and who leaves when time runs out."""

from datetime import timedelta

import pytest

from app.builds import stopping
from app.builds.conclude import Conclusion
from app.builds.parts import Caller
from app.db import builds
from app.errors import Refused
from tests.scene import ANN, ANYONE, BOB, ROOT, Scene, check_invariants, why


def _cancel(
    scene: Scene, build_id: str, caller: Caller = ANYONE, force: bool = False, reason: str | None = "why"
) -> None:
    stopping.cancel(scene.parts, build_id, caller, reason, force)
    check_invariants(scene.parts.database)


def test_a_queued_build_is_cancelled_at_once(scene: Scene) -> None:
    asked = scene.submit()
    assert asked.build
    scene.clock.turn(3)
    _cancel(scene, asked.build.id)
    row = scene.build(asked.build.id)
    assert (row.state, row.ended_by, row.stop_seconds, row.finished_at) == (
        "cancelled",
        "before_start",
        0.0,
        scene.clock(),
    )
    assert (row.stop_by, row.stop_reason, row.waiting_for) == ("anyone", "why", None)
    assert scene.kinds(row.id) == ["queued", "cancel_requested", "cancelled"]
    assert scene.request(asked.request_id).state == "cancelled"


def test_a_running_build_is_flagged_and_ends_when_its_attempt_says_so(scene: Scene) -> None:
    row = scene.running()
    _cancel(scene, row.id)
    flagged = scene.build(row.id)
    assert (flagged.state, flagged.stop, flagged.stop_at) == ("running", "cancel", scene.clock())
    with scene.parts.database.read() as tx:
        assert builds.stops_asked(tx, scene.worker) == {row.id}
        assert builds.stops_asked(tx, "wrk_other") == set()
    scene.clock.turn(2.5)
    Conclusion(scene.parts, row).halt("monitor")
    ended = scene.build(row.id)
    assert (ended.state, ended.ended_by, ended.stop_seconds) == ("cancelled", "monitor", 2.5)
    last = scene.events(row.id)[-1]
    assert last.type == "cancelled"
    assert (last.cancel.by, last.cancel.reason, last.cancel.ended_by, last.cancel.seconds) == (
        "anyone",
        "why",
        "monitor",
        2.5,
    )
    check_invariants(scene.parts.database)


def test_asked_again_nothing_changes(scene: Scene) -> None:
    row = scene.running()
    _cancel(scene, row.id)
    before = scene.build(row.id)
    scene.clock.turn(1)
    _cancel(scene, row.id, reason="another")
    assert scene.build(row.id) == before


def test_what_cannot_be_stopped(scene: Scene) -> None:
    publishing, ended = scene.running(1), scene.running(2)
    assert Conclusion(scene.parts, publishing).enter_publish()
    Conclusion(scene.parts, ended).fail(why())
    for build_id, code in ((publishing.id, "publishing"), (ended.id, "already_ended"), ("bld_none", "not_found")):
        with pytest.raises(Refused) as refused:
            _cancel(scene, build_id)
        assert refused.value.code == code
    assert scene.build(publishing.id).stop is None
    assert "cancel_requested" not in scene.kinds(publishing.id)


@pytest.mark.parametrize(
    ("waiting", "caller", "others"),
    [
        ([ANYONE], ANYONE, 0),
        ([ANYONE, ANYONE, ANYONE], ANYONE, 2),
        ([ANN], ANN, 0),
        ([ANN, ANN], ANN, 0),
        ([ANN, BOB, BOB], ANN, 2),
        ([BOB], ANN, 1),
        ([BOB], ROOT, 1),
    ],
)
def test_others_who_wait_are_counted(scene: Scene, waiting: list[Caller], caller: Caller, others: int) -> None:
    asked = [scene.submit(caller=c) for c in waiting]
    assert asked[0].build
    build_id = asked[0].build.id
    if others == 0:
        _cancel(scene, build_id, caller)
        assert scene.build(build_id).state == "cancelled"
        return
    with pytest.raises(Refused) as refused:
        _cancel(scene, build_id, caller)
    assert (refused.value.code, refused.value.extra) == ("build_shared", {"requests": others})
    assert scene.build(build_id).state == "queued"


def test_one_who_left_is_not_counted(scene: Scene) -> None:
    scene.submit(caller=ANN)
    left = scene.submit(caller=BOB)
    assert left.build
    stopping.withdraw(scene.parts, left.request_id, None)
    _cancel(scene, left.build.id, ANN)


def test_force_needs_admin_and_stops_for_all(scene: Scene) -> None:
    asked = [scene.submit(caller=c) for c in (ANN, BOB)]
    assert asked[0].build
    with pytest.raises(Refused, match="forbidden"):
        _cancel(scene, asked[0].build.id, ANN, force=True)
    _cancel(scene, asked[0].build.id, ROOT, force=True)
    assert [scene.request(a.request_id).state for a in asked] == ["cancelled", "cancelled"]


# ---- withdrawing


def test_one_of_two_who_leaves_stops_nothing(scene: Scene) -> None:
    first, second = scene.submit(), scene.submit()
    assert first.build
    stopping.withdraw(scene.parts, first.request_id, "bored")
    stopping.withdraw(scene.parts, first.request_id, "again")
    row = scene.build(first.build.id)
    assert (row.state, row.requests, row.stop) == ("queued", 1, None)
    event = scene.events(row.id)[-1]
    assert event.type == "withdrawn"
    assert (event.request_id, event.requests, event.reason) == (first.request_id, 1, "bored")
    assert scene.request(second.request_id).state == "waiting"
    check_invariants(scene.parts.database)


@pytest.mark.parametrize("started", [False, True])
def test_the_last_one_who_leaves_stops_the_build(scene: Scene, started: bool) -> None:
    asked = scene.submit(caller=ANN)
    assert asked.build
    if started:
        scene.claim(asked.build.id)
    stopping.withdraw(scene.parts, asked.request_id, None)
    row = scene.build(asked.build.id)
    assert (row.state, row.stop, row.stop_by) == ("running" if started else "cancelled", "cancel", "ann")
    assert scene.request(asked.request_id).state == "withdrawn", "it left; nobody cancelled it"
    check_invariants(scene.parts.database)


def test_who_leaves_during_publish_changes_nothing_for_the_build(scene: Scene) -> None:
    asked = scene.submit()
    assert asked.build
    row = scene.claim(asked.build.id)
    conclusion = Conclusion(scene.parts, row)
    conclusion.enter_publish()
    stopping.withdraw(scene.parts, asked.request_id, None)
    check_invariants(scene.parts.database)
    late = scene.submit()
    assert late.disposition == "joined"
    conclusion.succeed(scene.put_engine(row))
    assert scene.build(row.id).state == "succeeded"
    assert scene.request(asked.request_id).state == "withdrawn"
    assert scene.request(late.request_id).state == "served"
    check_invariants(scene.parts.database)


def test_who_leaves_a_build_that_is_being_stopped_is_not_counted_any_more(scene: Scene) -> None:
    asked = [scene.submit(caller=ANN), scene.submit(caller=ANN)]
    assert asked[0].build
    row = scene.claim(asked[0].build.id)
    _cancel(scene, row.id, ANN)
    stopping.withdraw(scene.parts, asked[0].request_id, None)
    assert scene.build(row.id).requests == 1
    stopping.withdraw(scene.parts, asked[1].request_id, None)
    check_invariants(scene.parts.database)
    Conclusion(scene.parts, row).halt("monitor")
    assert scene.build(row.id).state == "cancelled"
    check_invariants(scene.parts.database)


def test_what_cannot_be_withdrawn(scene: Scene) -> None:
    asked = scene.submit()
    assert asked.build
    Conclusion(scene.parts, scene.claim(asked.build.id)).fail(why())
    known = scene.submit()
    for request_id, code in (
        (asked.request_id, "already_ended"),
        (known.request_id, "already_ended"),
        ("req_none", "not_found"),
    ):
        with pytest.raises(Refused) as refused:
            stopping.withdraw(scene.parts, request_id, None)
        assert refused.value.code == code


# ---- timeouts


def test_a_queue_timeout_fails_the_build_when_nobody_else_waits(scene: Scene) -> None:
    asked = scene.submit(queue_timeout_s=10)
    assert asked.build
    scene.clock.turn(10)
    assert stopping.time_out(scene.parts) == 0, "not before the time is over"
    scene.clock.turn(0.001)
    assert stopping.time_out(scene.parts) == 1
    row, request = scene.build(asked.build.id), scene.request(asked.request_id)
    assert (row.state, row.failure and row.failure["code"]) == ("failed", "queue_timeout")
    assert (request.state, request.failure and request.failure["code"], request.deadline) == (
        "failed",
        "queue_timeout",
        None,
    )
    assert scene.kinds(row.id) == ["queued", "withdrawn", "failed"]
    assert stopping.time_out(scene.parts) == 0
    check_invariants(scene.parts.database)
    assert scene.submit().disposition == "created", "it says nothing about the key"


def test_a_run_timeout_asks_the_attempt_to_stop(scene: Scene) -> None:
    asked = scene.submit(queue_timeout_s=10, run_timeout_s=30)
    assert asked.build
    scene.clock.turn(9)
    row = scene.claim(asked.build.id)
    scene.clock.turn(29)
    assert stopping.time_out(scene.parts) == 0, "only running counts"
    scene.clock.turn(2)
    assert stopping.time_out(scene.parts) == 1
    assert scene.build(row.id).stop == "run_timeout"
    check_invariants(scene.parts.database)
    scene.clock.turn(1)
    Conclusion(scene.parts, row).halt("killed")
    ended = scene.build(row.id)
    assert (ended.state, ended.ended_by, ended.stop_seconds) == ("failed", "killed", 1.0)
    assert ended.failure
    assert ended.failure["code"] == "run_timeout"
    check_invariants(scene.parts.database)


def test_each_one_leaves_in_its_own_time(scene: Scene) -> None:
    short, long = scene.submit(run_timeout_s=10), scene.submit(run_timeout_s=1000)
    assert short.build
    row = scene.claim(short.build.id)
    scene.clock.turn(11)
    assert stopping.time_out(scene.parts) == 1
    assert [scene.request(a.request_id).state for a in (short, long)] == ["failed", "waiting"]
    assert (scene.build(row.id).requests, scene.build(row.id).stop) == (1, None)
    check_invariants(scene.parts.database)


def test_a_build_that_went_back_to_the_queue_waits_by_the_queue_timeout(scene: Scene) -> None:
    asked = scene.submit(queue_timeout_s=1000, run_timeout_s=30)
    assert asked.build
    row = scene.claim(asked.build.id)
    scene.clock.turn(29)
    Conclusion(scene.parts, row).halt("monitor")
    assert scene.build(row.id).state == "queued"
    assert scene.request(asked.request_id).deadline == scene.clock() + timedelta(seconds=1000)
    scene.clock.turn(2)
    assert stopping.time_out(scene.parts) == 0
    scene.claim(row.id)
    assert scene.request(asked.request_id).deadline == scene.clock() + timedelta(seconds=30)
    check_invariants(scene.parts.database)

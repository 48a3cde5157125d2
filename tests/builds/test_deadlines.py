"""Timeouts are each request's own: one leaves, the build goes on for the others."""

from typing import Any

from app.builds import stopping
from app.builds.conclude import Conclusion
from tests.builds.chain import asked, step, succeed
from tests.scene import ANN, ANYONE, BOB, Scene
from trtforge.contract.builds import Submitted

SHORT: dict[str, Any] = {"run_timeout_s": 10, "queue_timeout_s": 100}


def build_of(answer: Submitted) -> str:
    assert answer.build
    return answer.build.id


def test_one_request_runs_out_of_time_and_the_build_goes_on(scene: Scene) -> None:
    hasty = scene.submit(0, caller=ANN, run_timeout_s=5, priority=50)
    patient = scene.submit(0, caller=BOB, run_timeout_s=500)
    row = scene.claim(build_of(hasty))
    scene.clock.turn(6)
    stopping.time_out(scene.parts)
    failed = asked(scene, hasty.request_id)
    assert failed.state == "failed"
    assert failed.failure
    assert failed.failure.code == "run_timeout"
    going = scene.build(row.id)
    assert (going.state, going.stop, going.requests, going.priority) == ("running", None, 1, 0)
    withdrawn = [e for e in scene.events(row.id) if e.type == "withdrawn"]
    assert [(e.request_id, e.reason) for e in withdrawn] == [(hasty.request_id, "run_timeout")]
    succeed(scene, row)
    assert asked(scene, patient.request_id).state == "served"


def test_who_joins_a_running_build_has_the_run_timeout_from_then_on(scene: Scene) -> None:
    row = scene.running(0)
    scene.clock.turn(100)
    late = scene.submit(0, **SHORT)
    scene.clock.turn(9)
    assert stopping.time_out(scene.parts) == 0
    scene.clock.turn(2)
    assert stopping.time_out(scene.parts) == 1
    assert asked(scene, late.request_id).state == "failed"
    assert scene.build(row.id).stop is None


def test_a_build_that_returns_to_the_queue_has_queue_deadlines_again(scene: Scene) -> None:
    answer = scene.submit(0, **SHORT)
    scene.claim(build_of(answer))
    scene.clock.turn(9)
    Conclusion(scene.parts, scene.build(build_of(answer))).halt("between_stages")  # drained
    assert scene.build(build_of(answer)).state == "queued"
    scene.clock.turn(99)
    assert stopping.time_out(scene.parts) == 0
    scene.clock.turn(2)
    assert stopping.time_out(scene.parts) == 1
    failed = asked(scene, answer.request_id)
    assert failed.failure
    assert failed.failure.code == "queue_timeout"


def test_time_that_runs_out_during_the_grace_of_a_cancel_changes_nothing(scene: Scene) -> None:
    answer = scene.submit(fallback=[step(1)], stall_timeout_s=1, **SHORT)
    row = scene.claim(build_of(answer))
    stopping.cancel(scene.parts, row.id, ANYONE, None, force=False)
    scene.clock.turn(11)
    stopping.time_out(scene.parts)
    stopping.stall(scene.parts, row.id, 11)
    assert scene.request(answer.request_id).builds == [row.id]
    assert asked(scene, answer.request_id).state == "waiting"


def test_time_that_runs_out_past_the_point_of_no_return_changes_nothing(scene: Scene) -> None:
    answer = scene.submit(fallback=[step(1)], stall_timeout_s=1, **SHORT)
    row = scene.claim(build_of(answer))
    assert Conclusion(scene.parts, row).enter_publish()
    scene.clock.turn(11)
    stopping.time_out(scene.parts)
    stopping.stall(scene.parts, row.id, 11)
    succeed(scene, row)
    served = asked(scene, answer.request_id).served
    assert served
    assert not served.fallback

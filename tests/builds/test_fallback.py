"""A request whose build fails or runs out of time takes the next thing on its list, and says what it got."""

from typing import Any

import pytest

from app.builds import stopping
from app.builds.recover import recover
from app.errors import Refused
from tests.builds.chain import asked, engine, fail, step, succeed
from tests.scene import ANN, ANYONE, BOB, Scene, check_invariants
from trtforge.contract.builds import Submitted

SHORT: dict[str, Any] = {"run_timeout_s": 10, "queue_timeout_s": 100}


def first_and_next(scene: Scene, answer: Submitted) -> tuple[str, str]:
    """Return the two builds a request has gone through."""
    first, following = scene.request(answer.request_id).builds
    return first, following


def build_of(answer: Submitted) -> str:
    assert answer.build
    return answer.build.id


# ---- on what


def test_a_failure_queues_the_next_spec_linked_both_ways(scene: Scene) -> None:
    answer = scene.submit(fallback=[step(1)], priority=7, labels={"team": "vision"})
    fail(scene, scene.claim(build_of(answer)))
    first, following = first_and_next(scene, answer)
    assert first == build_of(answer)
    row = scene.build(following)
    assert (row.state, row.requests, row.priority, row.labels) == ("queued", 1, 7, {"team": "vision"})
    assert row.spec_effective["workspace_bytes"] == (1 << 20) + 1
    assert row.follows == first
    assert asked(scene, answer.request_id).state == "waiting"
    assert scene.kinds(first)[-1] == "failed"
    check_invariants(scene.parts.database)

    manifest = succeed(scene, scene.claim(following))
    done = asked(scene, answer.request_id)
    assert (done.state, done.builds) == ("served", (first, following))
    assert done.served
    assert (done.served.engine_key, done.served.fallback) == (manifest.engine_key, True)
    assert [(d.field, d.have, d.asked) for d in done.served.differs] == [
        ("workspace_bytes", (1 << 20) + 1, 1 << 20),
    ]
    check_invariants(scene.parts.database)


def test_without_a_fallback_the_engine_is_what_was_asked_for(scene: Scene) -> None:
    answer = scene.submit(fallback=[step(1)])
    succeed(scene, scene.claim(build_of(answer)))
    served = asked(scene, answer.request_id).served
    assert served
    assert (served.fallback, served.differs) == (False, ())


@pytest.mark.parametrize(("kind", "running"), [("run_timeout", True), ("queue_timeout", False)])
def test_a_timeout_goes_on_to_the_fallback_and_stops_what_nobody_waits_for(
    scene: Scene, kind: str, running: bool
) -> None:
    answer = scene.submit(fallback=[step(1)], **SHORT)
    if running:
        scene.claim(build_of(answer))
    scene.clock.turn(11 if running else 101)
    assert stopping.time_out(scene.parts) == 1
    first, following = first_and_next(scene, answer)
    left = scene.build(first)
    assert (left.state, left.stop, left.requests) == ("running" if running else "failed", kind, 0)
    withdrawn = next(e for e in scene.events(first) if e.type == "withdrawn")
    assert (withdrawn.request_id, withdrawn.reason, withdrawn.requests) == (answer.request_id, kind, 0)
    assert scene.build(following).follows == first
    check_invariants(scene.parts.database)


def test_a_stall_goes_on_to_the_fallback(scene: Scene) -> None:
    answer = scene.submit(fallback=[step(1)], stall_timeout_s=5)
    row = scene.claim(build_of(answer))
    stopping.stall(scene.parts, row.id, 4.9)
    assert scene.request(answer.request_id).builds == [row.id]
    stopping.stall(scene.parts, row.id, 5.1)
    _, following = first_and_next(scene, answer)
    assert scene.build(row.id).stop == "builder_stalled"
    assert scene.build(following).state == "queued"
    check_invariants(scene.parts.database)


def test_a_lost_worker_falls_back_after_its_last_loss(scene: Scene) -> None:
    answer = scene.submit(fallback=[step(1)])
    for _ in range(3):
        assert len(scene.request(answer.request_id).builds) == 1
        scene.claim(build_of(answer))
        scene.clock.turn(60)  # past the lease
        assert recover(scene.parts) == 1
    first, following = first_and_next(scene, answer)
    assert (scene.build(first).failure or {})["code"] == "worker_lost"
    assert scene.build(following).state == "queued"


def test_a_cancel_and_a_withdrawal_never_fall_back(scene: Scene) -> None:
    cancelled = scene.submit(0, fallback=[step(10), "existing"])
    stopping.cancel(scene.parts, build_of(cancelled), ANYONE, "no", force=False)
    withdrawn = scene.submit(1, fallback=[step(10), "existing"])
    scene.claim(build_of(withdrawn))
    stopping.withdraw(scene.parts, withdrawn.request_id, "no")
    assert [asked(scene, a.request_id).state for a in (cancelled, withdrawn)] == ["cancelled", "withdrawn"]
    assert [len(scene.request(a.request_id).builds) for a in (cancelled, withdrawn)] == [1, 1]
    check_invariants(scene.parts.database)


# ---- to what


def test_a_step_that_is_there_already_is_served_at_once(scene: Scene) -> None:
    there = engine(scene, 1)
    answer = scene.submit(fallback=[step(1)])
    fail(scene, scene.claim(build_of(answer)))
    done = asked(scene, answer.request_id)
    assert (done.state, done.builds) == ("served", (build_of(answer),))
    assert done.served
    assert (done.served.engine_key, done.served.fallback) == (there.engine_key, True)
    assert [d.field for d in done.served.differs] == ["workspace_bytes"]


@pytest.mark.parametrize("running", [False, True])
def test_a_step_that_another_builds_is_joined_with_the_deadline_of_its_state(scene: Scene, running: bool) -> None:
    other = scene.queued(1, priority=0)
    if running:
        scene.claim(other.id)
    answer = scene.submit(fallback=[step(1)], priority=9, **SHORT)
    scene.clock.turn(3)
    fail(scene, scene.claim(build_of(answer)))
    assert first_and_next(scene, answer)[1] == other.id
    joined = scene.build(other.id)
    assert (joined.requests, joined.priority, joined.follows) == (2, 9, None)
    deadline = scene.request(answer.request_id).deadline
    assert deadline
    assert (deadline - scene.clock()).total_seconds() == (10 if running else 100)
    assert [e.request_id for e in scene.events(other.id) if e.type == "joined"] == [answer.request_id]
    check_invariants(scene.parts.database)


def test_steps_that_would_fail_again_are_skipped(scene: Scene) -> None:
    fail(scene, scene.running(1), "builder_error")  # known to fail
    for _ in range(2):  # quarantined
        fail(scene, scene.running(2, retry=True), "builder_crashed")
    answer = scene.submit(0, fallback=[step(0), step(1), step(2), step(3)])  # the first is what fails right now
    fail(scene, scene.claim(build_of(answer)))
    _, following = first_and_next(scene, answer)
    assert scene.build(following).spec_effective["workspace_bytes"] == (1 << 20) + 3
    assert scene.request(answer.request_id).step == 4


def test_a_key_the_request_went_through_before_is_skipped_even_if_it_may_pass(scene: Scene) -> None:
    answer = scene.submit(0, fallback=[step(1), step(0), step(2)])
    fail(scene, scene.claim(build_of(answer)), "builder_killed")  # retryable: not a known failure
    fail(scene, scene.claim(scene.request(answer.request_id).builds[-1]), "builder_killed")
    last = scene.build(scene.request(answer.request_id).builds[-1])
    assert last.spec_effective["workspace_bytes"] == (1 << 20) + 2
    assert len(scene.request(answer.request_id).builds) == 3


def test_a_request_does_not_come_back_to_a_build_that_took_too_long_for_it(scene: Scene) -> None:
    patient = scene.submit(0)
    hasty = scene.submit(0, fallback=[step(1), step(0)], **SHORT)
    scene.claim(build_of(patient))
    scene.clock.turn(11)
    stopping.time_out(scene.parts)
    fail(scene, scene.claim(scene.request(hasty.request_id).builds[-1]))
    assert asked(scene, hasty.request_id).state == "failed"
    assert scene.build(build_of(patient)).requests == 1
    check_invariants(scene.parts.database)


def test_existing_is_the_engine_that_differs_least_and_the_newest_of_those(scene: Scene) -> None:
    engine(scene, 8)
    scene.clock.turn(1)
    near = engine(scene, 9)
    scene.clock.turn(1)
    engine(scene, 8, optimization_level=1)  # newer, and two fields away
    answer = scene.submit(fallback=["existing"])
    fail(scene, scene.claim(build_of(answer)))
    served = asked(scene, answer.request_id).served
    assert served
    assert (served.engine_key, served.fallback) == (near.engine_key, True)


def test_existing_passes_over_engines_whose_bytes_are_gone(scene: Scene) -> None:
    kept = engine(scene, 8)
    scene.clock.turn(1)
    gone = engine(scene, 9)
    for path in scene.parts.settings.data_dir.rglob(f"*{gone.plan.digest.removeprefix('sha256:')}*"):
        path.unlink()
    answer = scene.submit(fallback=["existing"])
    fail(scene, scene.claim(build_of(answer)))
    served = asked(scene, answer.request_id).served
    assert served
    assert served.engine_key == kept.engine_key


def test_nothing_left_is_the_last_failure(scene: Scene) -> None:
    answer = scene.submit(fallback=[step(1), "existing"])
    fail(scene, scene.claim(build_of(answer)), "builder_error")
    _, following = first_and_next(scene, answer)
    fail(scene, scene.claim(following), "builder_crashed")
    done = asked(scene, answer.request_id)
    assert done.state == "failed"
    assert done.failure
    assert done.failure.code == "builder_crashed"
    assert len(done.builds) == 2
    check_invariants(scene.parts.database)


# ---- at submit, and with others


def test_a_known_failure_goes_on_at_submit(scene: Scene) -> None:
    known = scene.running(0)
    fail(scene, known)
    answer = scene.submit(0, fallback=[step(1)])
    assert answer.disposition == "known_failure"
    assert scene.request(answer.request_id).builds == [known.id, build_of(answer)]
    assert scene.build(build_of(answer)).follows == known.id

    there = succeed(scene, scene.claim(build_of(answer)))
    again = scene.submit(0, fallback=[step(1)])
    assert again.disposition == "known_failure"
    assert again.engine
    assert again.engine.engine_key == there.engine_key
    assert asked(scene, again.request_id).state == "served"

    nothing = scene.submit(0)
    assert nothing.disposition == "known_failure"
    assert asked(scene, nothing.request_id).state == "failed"


def test_a_bad_fallback_is_refused_at_submit_with_its_place(scene: Scene) -> None:
    bad = {"spec": {"optimization_level": 99, "workspace_bytes": 0}}
    with pytest.raises(Refused) as refused:
        scene.submit(fallback=[step(1), "existing", bad])
    assert {e.where["fallback"] for e in refused.value.errors} == {2}
    assert len(refused.value.errors) == 2
    profile = {"nope": {"min": [1], "opt": [1], "max": [1]}}
    with pytest.raises(Refused) as refused:
        scene.submit(fallback=[{"spec": {"profiles": [profile]}}])
    assert [e.where["fallback"] for e in refused.value.errors] == [0]


def test_a_replay_answers_with_the_build_the_request_went_on_to(scene: Scene) -> None:
    answer = scene.submit(key="k", fallback=[step(1)])
    fail(scene, scene.claim(build_of(answer)))
    again = scene.submit(key="k", fallback=[step(1)])
    assert (again.request_id, again.disposition) == (answer.request_id, "created")
    assert build_of(again) == first_and_next(scene, answer)[1]
    assert scene.build(build_of(again)).requests == 1


def test_two_requests_of_one_build_go_their_own_ways(scene: Scene) -> None:
    a = scene.submit(0, caller=ANN, fallback=[step(1)])
    b = scene.submit(0, caller=BOB, fallback=[step(2)])
    c = scene.submit(0)
    fail(scene, scene.claim(build_of(a)))
    to_a, to_b = first_and_next(scene, a)[1], first_and_next(scene, b)[1]
    assert [scene.build(i).spec_effective["workspace_bytes"] - (1 << 20) for i in (to_a, to_b)] == [1, 2]
    assert asked(scene, c.request_id).state == "failed"
    check_invariants(scene.parts.database)


def test_two_requests_of_one_build_meet_again_in_one_fallback(scene: Scene) -> None:
    a, b = scene.submit(0, fallback=[step(1)]), scene.submit(0, fallback=[step(1)])
    fail(scene, scene.claim(build_of(a)))
    assert first_and_next(scene, a) == first_and_next(scene, b)
    assert scene.build(first_and_next(scene, a)[1]).requests == 2
    check_invariants(scene.parts.database)

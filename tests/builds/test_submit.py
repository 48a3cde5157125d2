"""A submit is decided once: created, joined, cached, known_failure or refused, whoever asks at the same moment."""

from datetime import timedelta
from typing import Any

import pytest

from app.builds import ending, stopping
from app.builds.submit import submit
from app.db import builds, engines, requests
from app.db.requests import RequestRow
from app.errors import Refused
from tests.scene import ANN, ANYONE, BOB, ROOT, Scene, at_once, check_invariants, digest, fine, why
from trtforge.contract.builds import Submit


def _fail(scene: Scene, code: str, **options: Any) -> str:
    row = scene.running(**options)
    with scene.parts.database.write() as tx:
        assert ending.fail(tx, scene.parts, row, why(code), [], scene.clock())
    scene.clock.turn(1)
    return row.id


def _succeed(scene: Scene, spec: int = 0) -> str:
    row = scene.running(spec)
    manifest = scene.put_engine(row)
    with scene.parts.database.write() as tx:
        assert ending.succeed(tx, row.id, row.attempt, manifest, [], scene.clock())
    scene.clock.turn(1)
    return row.engine_key


def test_the_first_creates_and_the_second_joins(scene: Scene) -> None:
    first, second = scene.submit(), scene.submit()
    assert (first.disposition, second.disposition) == ("created", "joined")
    assert first.build
    assert second.build
    assert first.build.id == second.build.id
    assert (first.build.requests, second.build.requests) == (1, 2)
    assert scene.kinds(first.build.id) == ["queued", "joined"]
    assert {scene.request(a.request_id).state for a in (first, second)} == {"waiting"}
    check_invariants(scene.parts.database)


def test_another_spec_is_another_build(scene: Scene) -> None:
    assert scene.queued(1).engine_key != scene.queued(2).engine_key
    check_invariants(scene.parts.database)


def test_a_running_build_is_joined_and_the_deadline_runs_from_the_join(scene: Scene) -> None:
    row = scene.running(run_timeout_s=100)
    scene.clock.turn(60)
    late = scene.submit(run_timeout_s=50)
    assert late.disposition == "joined"
    (first,) = {w.id: w for w in _waiting(scene, row.id) if w.id != late.request_id}.values()
    assert first.deadline == scene.clock() + timedelta(seconds=40)
    assert scene.request(late.request_id).deadline == scene.clock() + timedelta(seconds=50)


def _waiting(scene: Scene, build_id: str) -> list[RequestRow]:
    with scene.parts.database.read() as tx:
        return requests.waiting_on(tx, build_id)


def test_a_queued_request_has_its_queue_deadline_and_a_claim_starts_the_other(scene: Scene) -> None:
    answer = scene.submit(queue_timeout_s=10, run_timeout_s=20)
    assert answer.build
    assert scene.request(answer.request_id).deadline == scene.clock() + timedelta(seconds=10)
    scene.clock.turn(5)
    scene.claim(answer.build.id)
    assert scene.request(answer.request_id).deadline == scene.clock() + timedelta(seconds=20)


def test_an_engine_that_is_there_is_a_hit(scene: Scene) -> None:
    key = _succeed(scene)
    hit = scene.submit()
    assert (hit.disposition, hit.build) == ("cached", None)
    assert hit.engine
    assert hit.engine.engine_key == key
    request = scene.request(hit.request_id)
    assert (request.state, request.served_key, request.ended_at) == ("served", key, scene.clock())


def test_a_row_without_its_bytes_is_no_hit_and_goes(scene: Scene) -> None:
    key = _succeed(scene)
    engine = scene.engine(key)
    assert engine
    scene.parts.store.remove_plan(engine.plan.digest)
    again = scene.submit()
    assert again.disposition == "created"
    assert scene.engine(key) is None
    check_invariants(scene.parts.database)


def test_a_failure_that_would_repeat_is_told_at_once(scene: Scene) -> None:
    failed = _fail(scene, "builder_error")
    told = scene.submit()
    assert told.disposition == "known_failure"
    assert told.build
    assert (told.build.id, told.build.state) == (failed, "failed")
    request = scene.request(told.request_id)
    assert (request.state, request.failure and request.failure["code"]) == ("failed", "builder_error")
    check_invariants(scene.parts.database)


def test_retry_starts_anew_after_a_known_failure(scene: Scene) -> None:
    failed = _fail(scene, "builder_error")
    anew = scene.submit(retry=True)
    assert anew.disposition == "created"
    assert anew.build
    assert anew.build.id != failed
    assert scene.submit().disposition == "joined"


@pytest.mark.parametrize("code", ["builder_killed", "run_timeout", "worker_lost", "publish_failed"])
def test_a_failure_that_may_pass_is_not_remembered(scene: Scene, code: str) -> None:
    _fail(scene, code)
    assert scene.submit().disposition == "created"


def test_a_key_that_crashed_twice_is_quarantined_for_all_but_an_admin_who_retries(scene: Scene) -> None:
    crashed = [_fail(scene, "builder_crashed"), _fail(scene, "builder_crashed", retry=True)]
    for caller, retry in ((ANN, False), (ANN, True), (ROOT, False)):
        with pytest.raises(Refused) as refused:
            scene.submit(caller=caller, retry=retry)
        assert refused.value.code == "quarantined"
        assert refused.value.extra["builds"] == crashed[::-1]
    assert scene.submit(caller=ROOT, retry=True).disposition == "created"
    check_invariants(scene.parts.database)


def test_a_crash_and_then_another_failure_is_no_quarantine(scene: Scene) -> None:
    _fail(scene, "builder_crashed")
    _fail(scene, "builder_error", retry=True)
    assert scene.submit().disposition == "known_failure"
    assert scene.submit(retry=True, caller=ANN).disposition == "created"


def test_a_refused_submit_leaves_nothing_not_even_its_key(scene: Scene) -> None:
    _fail(scene, "builder_crashed")
    _fail(scene, "builder_crashed", retry=True)
    with pytest.raises(Refused, match="quarantined"):
        scene.submit(caller=ANN, key="k", body=b"1")
    assert scene.submit(spec=1, caller=ANN, key="k", body=b"2").disposition == "created"


def test_an_unknown_model_is_refused(scene: Scene) -> None:
    with pytest.raises(Refused, match="model_unknown"):
        submit(scene.parts, Submit(model=digest("none")), ANYONE, None, b"")


def test_a_build_that_is_being_stopped_is_not_joined(scene: Scene) -> None:
    dying = scene.running()
    stopping.cancel(scene.parts, dying.id, ANYONE, None, force=False)
    anew = scene.submit()
    assert anew.disposition == "created"
    assert anew.build
    assert anew.build.id != dying.id
    assert scene.submit().disposition == "joined"
    with scene.parts.database.write() as tx:
        assert ending.end_stopped(tx, scene.parts, scene.build(dying.id), "killed", [], scene.clock())
    assert scene.build(anew.build.id).state == "queued"
    check_invariants(scene.parts.database)


# ---- at once


def test_twenty_at_once_make_one_build_with_twenty_requests(scene: Scene) -> None:
    answers = fine(at_once(*[scene.submit] * 20))
    assert sorted(a.disposition for a in answers) == ["created"] + ["joined"] * 19
    ids = {a.build.id for a in answers if a.build}
    assert len(ids) == 1
    row = scene.build(ids.pop())
    assert row.requests == 20
    assert len({a.request_id for a in answers}) == 20
    joined = [e.request_id for e in scene.events(row.id) if e.type == "joined"]
    assert sorted(joined) == sorted(a.request_id for a in answers if a.disposition == "joined")
    check_invariants(scene.parts.database)


def test_submits_of_several_keys_at_once(scene: Scene) -> None:
    answers = fine(at_once(*[lambda n=n: scene.submit(n % 4) for n in range(20)]))
    assert sum(a.disposition == "created" for a in answers) == 4
    check_invariants(scene.parts.database)


# ---- idempotency


def test_a_replay_adds_no_request_and_answers_as_things_stand(scene: Scene) -> None:
    first = scene.submit(key="k", body=b"1")
    assert first.build
    scene.claim(first.build.id)
    again = scene.submit(key="k", body=b"1")
    assert (again.request_id, again.disposition) == (first.request_id, "created")
    assert again.build
    assert again.build.state == "running"
    assert scene.build(first.build.id).requests == 1


def test_a_replay_after_the_end_shows_the_engine(scene: Scene) -> None:
    first = scene.submit(key="k", body=b"1")
    assert first.build
    row = scene.claim(first.build.id)
    manifest = scene.put_engine(row)
    with scene.parts.database.write() as tx:
        assert ending.succeed(tx, row.id, 1, manifest, [], scene.clock())
    again = scene.submit(key="k", body=b"1")
    assert again.engine
    assert again.build
    assert (again.disposition, again.build.state) == ("created", "succeeded")
    hit = scene.submit(key="other", body=b"1")
    assert scene.submit(key="other", body=b"1") == hit
    assert hit.disposition == "cached"


def test_the_same_key_with_another_body_is_refused(scene: Scene) -> None:
    first = scene.submit(key="k", body=b"1")
    assert first.build
    with pytest.raises(Refused, match="idempotency_mismatch"):
        scene.submit(key="k", body=b"2")
    assert scene.build(first.build.id).requests == 1
    assert scene.submit(key="k", body=b"2", caller=BOB).disposition == "joined", "keys are each caller's own"


def test_a_key_is_forgotten_after_a_day(scene: Scene) -> None:
    scene.submit(key="k", body=b"1")
    scene.clock.turn(24 * 3600)
    with pytest.raises(Refused, match="idempotency_mismatch"):
        scene.submit(key="k", body=b"2")
    scene.clock.turn(0.000001)
    assert scene.submit(key="k", body=b"2").disposition == "joined"
    check_invariants(scene.parts.database)


@pytest.mark.parametrize("bodies", [(b"1",) * 6, (b"1", b"2") * 3])
def test_one_key_at_once_makes_one_request(scene: Scene, bodies: tuple[bytes, ...]) -> None:
    answers = at_once(*[lambda b=b: scene.submit(key="k", body=b) for b in bodies])
    served = [a for a in answers if not isinstance(a, Exception)]
    refused = [a for a in answers if isinstance(a, Exception)]
    assert len({a.request_id for a in served}) == 1  # type: ignore[union-attr]
    assert len(served) == (6 if len(set(bodies)) == 1 else 3)
    assert all(isinstance(r, Refused) and r.code == "idempotency_mismatch" for r in refused)
    (row,) = _all(scene)
    assert row.requests == 1
    check_invariants(scene.parts.database)


def _all(scene: Scene) -> list[builds.BuildRow]:
    with scene.parts.database.read() as tx:
        return builds.page(tx, builds.BuildFilter(), 100, None)


# ---- priority


def test_a_shared_build_has_the_highest_priority_of_those_who_wait(scene: Scene) -> None:
    low = scene.submit(priority=-5)
    assert low.build
    high, middle = scene.submit(priority=50), scene.submit(priority=7)
    assert scene.build(low.build.id).priority == 50
    stopping.withdraw(scene.parts, high.request_id, None)
    assert scene.build(low.build.id).priority == 7
    stopping.withdraw(scene.parts, middle.request_id, None)
    assert scene.build(low.build.id).priority == -5


def test_the_priority_is_right_whoever_comes_and_goes_at_once(scene: Scene) -> None:
    for spec in range(6):
        stays = scene.submit(spec, priority=1)
        assert stays.build
        leaving = [scene.submit(spec, priority=p).request_id for p in (40, 50, 60)]
        fine(
            at_once(
                *[lambda r=r: stopping.withdraw(scene.parts, r, None) for r in leaving],
                *[lambda p=p, s=spec: scene.submit(s, priority=p) for p in (20, 30)],
            )
        )
        assert scene.build(stays.build.id).priority == 30
    check_invariants(scene.parts.database)


def test_an_engine_row_can_go_while_others_ask(scene: Scene) -> None:
    key = _succeed(scene)
    engine = scene.engine(key)
    assert engine
    scene.parts.store.remove_plan(engine.plan.digest)
    answers = fine(at_once(*[scene.submit] * 8))
    assert sorted(a.disposition for a in answers) == ["created"] + ["joined"] * 7
    with scene.parts.database.read() as tx:
        assert not engines.is_there(tx, key)
    check_invariants(scene.parts.database)

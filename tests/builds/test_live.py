"""What is known of a running build beside its rows, and what clients see of both."""

from datetime import UTC, datetime, timedelta
from time import sleep

import pytest

from app.builds.conclude import Conclusion
from app.builds.live import Live, LiveBuild
from app.builds.stopping import cancel
from app.builds.views import build_view, find_build, find_request
from app.db import builds
from app.db.builds import BuildRow
from tests.scene import ANYONE, START, Clock, Scene, why
from trtforge.contract import events as ev
from trtforge.contract.builds import Build


def _view(scene: Scene, row: BuildRow) -> Build:
    with scene.parts.database.read() as tx:
        return build_view(tx, scene.parts, scene.build(row.id))


def _started(number: int, parent: int | None, at: datetime, steps: int | None = None) -> ev.PhaseStarted:
    return ev.PhaseStarted(
        seq=number, at=at, attempt=1, phase=ev.Phase(id=number, parent=parent, name=f"p{number}", steps=steps)
    )


def test_phases_nest_and_count_and_end() -> None:
    clock = Clock()
    live = LiveBuild(clock)
    live.fold(_started(1, None, clock(), 10))
    clock.turn(2)
    live.fold(_started(2, 1, clock()))
    live.fold(ev.PhaseProgress(phase=ev.PhaseStep(id=1, step=4)))
    clock.turn(1)
    outer, inner = live.progress().phases
    assert (outer.id, outer.parent, outer.step, outer.steps, outer.elapsed_s) == (1, None, 4, 10, 3.0)
    assert (inner.id, inner.parent, inner.step, inner.steps, inner.elapsed_s) == (2, 1, None, None, 1.0)
    live.fold(ev.PhaseFinished(seq=3, at=clock(), attempt=1, phase=ev.PhaseId(id=2), elapsed_s=1.0))
    assert [p.id for p in live.progress().phases] == [1]


def test_a_clock_that_goes_back_gives_no_negative_time() -> None:
    clock = Clock()
    live = LiveBuild(clock)
    live.fold(_started(1, None, clock()))
    clock.turn(-3600)
    progress = live.progress()
    assert progress.phases[0].elapsed_s == 0.0
    assert progress.elapsed_s >= 0


def test_activity_is_unknown_until_two_samples() -> None:
    live = LiveBuild(lambda: START)
    assert live.progress().activity is None
    live.sample(1.0, 100)
    assert (live.activity, live.progress().cpu_s, live.progress().rss_bytes) == (None, 1.0, 100)
    live.sample(900.0, 200)
    assert (live.activity, live.progress().cpu_s, live.progress().rss_bytes) == ("working", 900.0, 200)


def test_a_child_without_cpu_time_is_idle() -> None:
    live = LiveBuild(lambda: START)
    live.sample(5.0, 100)
    sleep(0.01)  # samples of one instant would say nothing
    live.sample(5.0, 100)
    assert live.activity == "idle"


def test_live_builds_by_id() -> None:
    live, one = Live(), LiveBuild(lambda: START)
    live.add("bld_1", one)
    assert live.get("bld_1") is one
    live.remove("bld_1")
    live.remove("bld_1")
    assert live.get("bld_1") is None


# ---- views


def test_a_queued_build_shows_its_place(scene: Scene) -> None:
    first = scene.queued(1)
    scene.clock.turn(1)
    second = scene.queued(2, labels={"a": "b"}, priority=0)
    seen = _view(scene, second)
    assert (seen.state, seen.queue_position, seen.waiting_for, seen.progress) == ("queued", 1, "worker", None)
    assert (seen.labels, seen.requests, seen.attempt) == ({"a": "b"}, 1, 0)
    assert seen.spec.requested.optimization_level is None
    assert seen.spec.effective.optimization_level == 3
    assert _view(scene, first).queue_position == 0


def test_progress_is_this_process_s_own_or_as_another_stored_it(scene: Scene) -> None:
    row = scene.running()
    assert _view(scene, row).progress is None
    live = LiveBuild(scene.clock)
    stored = live.progress().model_copy(update={"cpu_s": 7.0})
    with scene.parts.database.write() as tx:
        assert builds.renew(tx, row.id, 1, scene.clock() + timedelta(seconds=15), stored.model_dump(mode="json"))
    assert _view(scene, row).progress == stored
    live.sample(8.0, 1)
    scene.parts.live.add(row.id, live)
    mine = _view(scene, row).progress
    assert mine
    assert mine.cpu_s == 8.0
    Conclusion(scene.parts, row).fail(why())
    assert _view(scene, row).progress is None


def test_a_cancel_is_seen_while_it_goes_on_and_afterwards(scene: Scene) -> None:
    row = scene.running()
    assert _view(scene, row).cancel is None
    cancel(scene.parts, row.id, ANYONE, "enough", force=False)
    going = _view(scene, row).cancel
    assert going
    assert (going.by, going.reason, going.ended_by, going.seconds) == ("anyone", "enough", None, None)
    assert going.requested_at == scene.clock().astimezone(UTC)
    scene.clock.turn(1.5)
    Conclusion(scene.parts, row).halt("killed")
    over = _view(scene, row).cancel
    assert over
    assert (over.ended_by, over.seconds) == ("killed", 1.5)


def test_an_end_is_seen_by_build_and_request(scene: Scene) -> None:
    asked, other = scene.submit(1, labels={"k": "v"}), scene.submit(2)
    assert asked.build
    assert other.build
    row = scene.claim(asked.build.id)
    manifest = scene.put_engine(row)
    Conclusion(scene.parts, row).succeed(manifest)
    Conclusion(scene.parts, scene.claim(other.build.id)).fail(why("op_unsupported"))
    done, failed = find_build(scene.parts, asked.build.id), find_build(scene.parts, other.build.id)
    assert done
    assert failed
    assert done.engine
    assert (done.engine.engine_key, done.engine.plan, done.failure) == (row.engine_key, manifest.plan, None)
    assert failed.failure
    assert (failed.engine, failed.failure.code, failed.failure.stage) == (None, "op_unsupported", "build")
    served, refused = find_request(scene.parts, asked.request_id), find_request(scene.parts, other.request_id)
    assert served
    assert refused
    assert served.served
    assert (served.state, served.served.engine_key, served.builds, served.labels) == (
        "served",
        row.engine_key,
        (row.id,),
        {"k": "v"},
    )
    assert refused.failure
    assert (refused.state, refused.failure.code) == ("failed", "op_unsupported")


@pytest.mark.parametrize("find", [find_build, find_request])
def test_what_is_not_there_is_none(small: Scene, find: object) -> None:
    assert find(small.parts, "none") is None  # type: ignore[operator]

"""Lists: the queue, pages that lose and repeat nothing, and filters."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.builds import ending
from app.builds.publish import make_manifest
from app.db import builds, engines, models, targets
from app.db.builds import BuildFilter, BuildRow
from app.db.engines import EngineFilter
from tests.scene import BUILT, MODEL, Scene, digest, opened, why
from trtforge.contract.engines import PlanRef, Timings


def _add(scene: Scene, build: BuildRow, number: int, seconds: float, priority: int = 0) -> BuildRow:
    """Insert a queued build of a key of its own; `seconds` say how old it is."""
    fresh = replace(
        build,
        id=f"bld_{number:04}",
        engine_key=digest(str(number)),
        last_seq=0,
        priority=priority,
        created_at=scene.clock() + timedelta(seconds=seconds),
    )
    with scene.parts.database.write() as tx:
        assert builds.create(tx, fresh, fresh.created_at)
    return scene.build(fresh.id)


def test_the_queue_goes_by_priority_then_age_then_id(scene: Scene) -> None:
    first = scene.queued()
    made = [
        _add(scene, first, n, seconds, priority)
        for n, (seconds, priority) in enumerate([(5, 0), (1, 0), (1, 0), (9, 50), (0.000001, -1), (8, 50)])
    ]
    want = [made[5].id, made[3].id, first.id, made[1].id, made[2].id, made[0].id, made[4].id]
    with scene.parts.database.read() as tx:
        assert [b.id for b in builds.queue(tx, scene.target, 100)] == want
        assert [b.id for b in builds.queue(tx, scene.target, 2)] == want[:2]
        assert builds.queue(tx, "tgt_other", 100) == []
        assert [builds.queue_position(tx, scene.build(i)) for i in want] == list(range(7))
    scene.claim(want[0])
    with scene.parts.database.read() as tx:
        assert builds.queue_position(tx, scene.build(want[0])) is None
        assert [builds.queue_position(tx, scene.build(i)) for i in want[1:]] == list(range(6))
        assert [b.id for b in builds.running(tx)] == [want[0]]


def _walk(scene: Scene, limit: int, between: object = None) -> list[str]:
    found: list[str] = []
    before = None
    while True:
        with scene.parts.database.read() as tx:
            page = builds.page(tx, BuildFilter(), limit, before)
        if not page:
            return found
        found += [b.id for b in page]
        before = (page[-1].created_at, page[-1].id)
        if callable(between):
            between()


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(ages=st.lists(st.integers(0, 3), min_size=1, max_size=12), limit=st.integers(1, 5), seed=st.integers(0, 99))
def test_walking_pages_gives_every_row_once(
    database_url: str, tmp_path: Path, ages: list[int], limit: int, seed: int
) -> None:
    """Rows of the same instant too, and whatever is inserted meanwhile."""
    with opened(database_url, tmp_path) as scene:
        one = scene.queued(seed)
        with scene.parts.database.write() as tx:
            for table in ("build_events", "requests", "builds"):
                tx.exec_driver_sql(f"delete from {table}")
        rows = [_add(scene, one, n, age) for n, age in enumerate(ages)]
        late = iter(range(1000, 2000))
        random = Random(seed)
        found = _walk(
            scene,
            limit,
            lambda: _add(scene, one, next(late), random.choice([-1, 0, 1, 2, 3, 4])) if random.random() < 0.7 else None,
        )
        assert len(found) == len(set(found))
        order = [b.id for b in sorted(rows, key=lambda b: (b.created_at, b.id), reverse=True)]
        assert [i for i in found if int(i[4:]) < 1000] == order


def test_builds_are_filtered(scene: Scene) -> None:
    red = scene.queued(1, labels={"team": "red", "a/b.c-d": "x=y", "n": "1"})
    scene.clock.turn(1)
    blue = scene.running(2, labels={"team": "blue"})
    scene.clock.turn(1)
    plain = scene.queued(3)

    def found(**wanted: object) -> list[str]:
        with scene.parts.database.read() as tx:
            return [b.id for b in builds.page(tx, BuildFilter(**wanted), 10, None)]  # type: ignore[arg-type]

    assert found() == [plain.id, blue.id, red.id]
    assert found(label=("team", "red")) == [red.id]
    assert found(label=("a/b.c-d", "x=y")) == [red.id]
    assert found(label=("n", "1")) == [red.id]
    assert found(label=("team", "")) == []
    assert found(label=("nobody", "red")) == []
    assert found(state="running") == [blue.id]
    assert found(engine_key=plain.engine_key) == [plain.id]
    assert found(model=MODEL, state="queued", label=("team", "red")) == [red.id]
    assert found(model=digest("none")) == []


@pytest.mark.parametrize("key", ['a"b', "a'b", "a\\b", "$.team", "team[0]", "", "é", '"'])
def test_any_label_may_be_asked_for(scene: Scene, key: str) -> None:
    scene.queued(1, labels={"team": "red"})
    with scene.parts.database.read() as tx:
        assert builds.page(tx, BuildFilter(label=(key, "red")), 10, None) == []


def test_the_newest_outcomes_leave_cancelled_builds_out(scene: Scene) -> None:
    ended = []
    for n in range(3):
        scene.clock.turn(1)
        row = scene.running(1, retry=True)
        with scene.parts.database.write() as tx:
            assert ending.fail(
                tx, scene.parts, row, why("builder_error" if n else "builder_crashed"), [], scene.clock()
            )
        ended.append(row.id)
    scene.clock.turn(1)
    gone = scene.queued(1, retry=True)
    with scene.parts.database.write() as tx:
        assert ending.stop_queued(tx, gone.id, builds.Stop("cancel", scene.clock(), "ann", None))
        assert [b.id for b in builds.last_outcomes(tx, gone.engine_key, 2)] == [ended[2], ended[1]]


def test_engines_are_listed_filtered_and_paged(scene: Scene) -> None:
    row = scene.queued()
    with scene.parts.database.read() as tx:
        model = models.find(tx, MODEL)
    assert model
    keys = []
    for n in range(7):
        scene.clock.turn(n % 2)
        key = digest(f"engine {n}")
        plan = PlanRef(digest=digest(f"plan {n}"), size=n)
        made = make_manifest(
            replace(row, engine_key=key), model, BUILT, plan, Timings(stages={}, phases=()), [], scene.clock()
        )
        with scene.parts.database.write() as tx:
            engines.add(tx, made)
            engines.add(tx, made)
        keys.append((scene.clock(), key))
    want = [key for _, key in sorted(keys, reverse=True)]
    found: list[str] = []
    before = None
    with scene.parts.database.read() as tx:
        while page := engines.page(tx, EngineFilter(model=MODEL, builder="tensorrt_rtx"), 2, before):
            found += [e.engine_key for e in page]
            before = (page[-1].created_at, page[-1].engine_key)
        assert engines.page(tx, EngineFilter(gpu="NVIDIA L4"), 9, None) == []
        assert engines.plan(tx, digest("plan 3")) == PlanRef(digest=digest("plan 3"), size=3)
        assert engines.plan(tx, digest("none")) is None
        assert engines.manifest(tx, want[0])
    assert found == want
    with scene.parts.database.write() as tx:
        engines.fetched(tx, digest("plan 3"), scene.clock())
        engines.remove(tx, want[0])
    fetched = scene.engine(digest("engine 3"))
    assert fetched
    assert fetched.last_fetched_at == scene.clock()
    assert scene.engine(want[0]) is None


def test_targets_tell_live_workers_and_the_queue(scene: Scene) -> None:
    scene.queued(1)
    scene.queued(2)
    scene.running(3)
    with scene.parts.database.read() as tx:
        (one,) = targets.known(tx, scene.clock())
        (later,) = targets.known(tx, scene.clock() + timedelta(seconds=1))
    assert (one.id, one.default, one.workers, one.queue_length) == (scene.target, True, 1, 2)
    assert later.workers == 0
    scene.clock.turn(5)
    with scene.parts.database.write() as tx:
        targets.see_worker(tx, scene.worker, scene.clock())
        (seen,) = targets.known(tx, scene.clock())
        targets.remove_workers(tx, [scene.worker])
        (left,) = targets.known(tx, scene.clock())
    assert (seen.workers, seen.last_seen) == (1, scene.clock())
    assert left.workers == 0

"""What goes and what stays: rule by rule, on both databases, with real bytes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.builds.conclude import Conclusion
from app.builds.gc import collect
from app.builds.gc_rules import Look, steps
from app.builds.naming import set_name
from app.builds.parts import Parts
from app.builds.room import lacks
from app.builds.verify import verify
from app.db import builds, engines, models, requests, tables
from app.domain.estimate import Past
from app.errors import Refused
from app.worker.locks import try_lock
from tests.builds.stocked import age_files, digest_of, stock_engine, stock_model
from tests.scene import ANN, ANYONE, MODEL, Scene, opened, why
from trtforge.contract.engines import Manifest
from trtforge.contract.names import Want
from trtforge.contract.spec import BuildSpec

YEAR = 365 * 86400.0
MIB = 1 << 20

Open = Callable[..., Scene]


@pytest.fixture
def scene_with(database_url: str, tmp_path: Path) -> Iterator[Open]:
    """A scene with settings of one's own."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Scene:
            return stack.enter_context(opened(database_url, tmp_path, **settings))

        yield make


def is_there(parts: Parts, engine: Manifest) -> bool:
    """Whole, or gone without a rest."""
    with parts.database.read() as tx:
        row = engines.is_there(tx, engine.engine_key)
    assert (parts.store.manifest(engine.engine_key) is not None) == row
    assert not row or parts.store.verify_plan(engine.plan.digest)
    return row


def went(scene: Scene, kind: str | None = None) -> list[str]:
    """Collect; return what went, which is what a dry run said would go."""
    said = collect(scene.parts, dry_run=True)
    done = collect(scene.parts, dry_run=False)
    assert done.items == said.items
    assert all(item.why for item in done.items)
    assert collect(scene.parts, dry_run=True).items == ()
    return [item.id for item in done.items if kind in (None, item.kind)]


def model_is_there(parts: Parts, digest: str) -> bool:
    with parts.database.read() as tx:
        row = models.find(tx, digest) is not None
    assert row == (parts.store.inspection(digest) is not None) == parts.store.has_model(digest)
    return row


def test_by_default_no_engine_and_no_model_ever_goes(scene_with: Open):
    scene = scene_with()
    model = stock_model(scene.parts)
    engine = stock_engine(scene.parts, model, 1, b"plan")
    scene.clock.turn(10 * YEAR)
    age_files(scene.parts)
    assert went(scene) == []
    assert is_there(scene.parts, engine)
    assert model_is_there(scene.parts, model)


def test_the_newest_of_a_model_and_target_stay_and_so_does_what_somebody_holds(scene_with: Open):
    scene = scene_with(keep_engines=1)
    parts, made = scene.parts, []
    for number in range(7):
        made.append(stock_engine(parts, MODEL, number, b"plan %d" % number))
        scene.clock.turn(60)
    other = stock_engine(parts, stock_model(parts), 0, b"another model's", created_at=scene.clock() - timedelta(days=9))
    pinned, named, live, sent, fetched, old, _ = made
    with parts.database.write() as tx:
        engines.pin(tx, pinned.engine_key, True)
    set_name(parts, "n", Want(model=MODEL, spec=BuildSpec(workspace_bytes=MIB + 1)), ANYONE)
    parts.store.remove_plan(live.plan.digest)  # so that it is built anew
    assert scene.queued(2).engine_key == live.engine_key
    with parts.database.write() as tx:
        engines.add(tx, live)
    scene.clock.turn(3600)
    with parts.database.write() as tx:
        engines.fetched(tx, fetched.plan.digest, scene.clock())
    with parts.sending.of(sent.plan.digest):
        assert went(scene) == [old.engine_key]
    assert not is_there(parts, old)
    assert not parts.store.open_plan(old.plan.digest).exists()
    for kept in (pinned, named, sent, fetched, made[-1], other):
        assert is_there(parts, kept)
    assert went(scene) == [sent.engine_key]  # nobody is sent it any more


def test_an_engine_goes_when_nobody_fetched_it_for_too_long(scene_with: Open):
    scene = scene_with(engine_max_age_s=YEAR)
    fetched, unused = (stock_engine(scene.parts, MODEL, n, b"plan %d" % n) for n in (1, 2))
    scene.clock.turn(YEAR - 60)
    with scene.parts.database.write() as tx:
        engines.fetched(tx, fetched.plan.digest, scene.clock())
    assert went(scene) == []
    scene.clock.turn(120)
    assert went(scene) == [unused.engine_key]
    assert is_there(scene.parts, fetched)


def test_beyond_the_quota_models_of_nobody_go_and_then_what_was_fetched_least_recently(scene_with: Open):
    scene = scene_with(max_store_bytes=10 * MIB, min_free_bytes=0)
    parts = scene.parts
    unused, used = stock_model(parts, b"u" * MIB), stock_model(parts, b"v" * MIB)
    made = [stock_engine(parts, used, n, bytes([n]) * 2 * MIB) for n in range(4)]
    twin = stock_engine(parts, used, 9, bytes([1]) * 2 * MIB)  # the bytes of the second
    scene.clock.turn(YEAR)
    for turn, engine in enumerate((made[0], made[3], made[2])):  # the second and its twin never
        with parts.database.write() as tx:
            engines.fetched(tx, engine.plan.digest, scene.clock() + timedelta(seconds=turn))
    scene.clock.turn(86400)
    with parts.database.write() as tx:
        tx.execute(tables.models.delete().where(tables.models.c.digest == MODEL))  # the scene has no bytes of it
    said = {item.id: item.bytes for item in collect(parts, dry_run=True).items}
    assert said == {unused: MIB}  # that is enough
    parts.wanted.ask(5 * MIB)  # somebody needs more room
    done = collect(parts, dry_run=False)
    freed = {item.id: item.bytes for item in done.items}
    assert freed.pop(unused) == MIB
    assert sorted(freed.values()) == [0, 2 * MIB, 2 * MIB]  # the twins free their bytes once
    assert set(freed) == {made[1].engine_key, twin.engine_key, made[0].engine_key}
    assert parts.store.used_bytes() == done.store_bytes - done.bytes == 5 * MIB
    assert parts.wanted.now == 0
    assert not model_is_there(parts, unused)
    assert model_is_there(parts, used)
    assert verify(parts).faults == ()


def test_a_model_goes_once_nothing_refers_to_it(scene_with: Open):
    scene = scene_with(model_max_age_s=YEAR)
    parts = scene.parts
    free, named, has_engine = (stock_model(parts, b"model %d" % n) for n in range(3))
    engine = stock_engine(parts, has_engine, 1, b"plan")
    set_name(parts, "n", Want(model=named), ANYONE)
    build = scene.queued()  # of MODEL, whose bytes were never here
    scene.clock.turn(2 * YEAR)
    assert went(scene) == [free]
    assert not model_is_there(parts, free)
    assert all(model_is_there(parts, one) for one in (named, has_engine))
    assert is_there(parts, engine)
    assert scene.build(build.id).state == "queued"


def test_files_and_plans_that_nothing_has_go_when_they_are_old(scene_with: Open):
    scene = scene_with()
    parts = scene.parts
    model = stock_model(parts)
    engine = stock_engine(parts, model, 1, b"plan")
    upload = parts.store.begin_model()
    upload.write(b"weights of no model")
    parts.store.put_model(upload, upload.digest)
    folder = parts.store.scratch("p")
    (folder / "plan").write_bytes(b"left by a crash")
    with parts.store.take_plan(folder / "plan") as staged:
        parts.store.put_plan(staged)
    assert went(scene) == []
    age_files(parts)
    assert set(went(scene)) == {upload.digest, digest_of(b"left by a crash")}
    assert is_there(parts, engine)
    assert model_is_there(parts, model)


def test_a_lost_database_takes_nothing_of_the_store_with_it(scene_with: Open):
    scene = scene_with(model_max_age_s=1.0)
    parts = scene.parts
    model = stock_model(parts)
    engine = stock_engine(parts, model, 1, b"plan")
    with parts.database.write() as tx:
        engines.remove(tx, engine.engine_key)
        tx.execute(tables.models.delete())
    age_files(parts)
    scene.clock.turn(YEAR)
    assert collect(parts, dry_run=False).items == ()
    assert is_there(parts, engine)
    assert model_is_there(parts, model)


def ended(scene: Scene, spec: int, **options: Any) -> str:
    """A build that failed, with a log and some events; its id."""
    row = scene.running(spec, **options)
    scene.parts.store.append_log(row.id, b"words of the builder\n")
    Conclusion(scene.parts, row).fail(why())
    return row.id


def test_old_builds_lose_log_and_events_but_the_last_and_then_go(scene_with: Open):
    scene = scene_with()
    parts = scene.parts
    old = ended(scene, 1)
    count = len(scene.events(old))
    assert count > 2
    scene.clock.turn(31 * 86400)
    young, live = ended(scene, 2), scene.queued(3).id
    done = collect(parts, dry_run=False)
    assert {(item.kind, item.id) for item in done.items} == {("log", old), ("events", old)}
    assert all(item.bytes for item in done.items)
    assert [(e.seq, e.type) for e in scene.events(old)] == [(count, "failed")]
    assert parts.store.log(old) is None
    assert len(scene.events(young)) == count
    assert parts.store.log(young)
    scene.clock.turn(180 * 86400 - 31 * 86400 + 1)
    kinds = [item.kind for item in collect(parts, dry_run=False).items]
    assert sorted(kinds) == ["build", "events", "log", "request"]
    with parts.database.read() as tx:
        assert builds.find(tx, old) is None
        assert requests.count(tx) == 2
        assert tx.execute(select(tables.build_events.c.seq).where(tables.build_events.c.build_id == old)).all() == []
    assert scene.build(young).state == "failed"
    assert scene.build(live).state == "queued"


def test_a_request_that_waits_on_its_fallback_keeps_the_builds_it_went_through(scene_with: Open):
    scene = scene_with()
    first = ended(scene, 1, fallback=[{"spec": {"optimization_level": 1}}], queue_timeout_s=604800)
    scene.clock.turn(400 * 86400)
    assert went(scene, "build") == []
    assert scene.build(first).state == "failed"


def test_keys_of_requests_are_forgotten_after_a_day(scene_with: Open):
    scene = scene_with()
    scene.submit(1, caller=ANN, key="one")
    assert went(scene) == []
    scene.clock.turn(86400 + 1)
    assert went(scene) == ["1"]
    with scene.parts.database.read() as tx:
        assert tx.execute(select(tables.idempotency_keys.c.key)).all() == []


def test_nothing_goes_for_what_would_never_fit(scene_with: Open):
    scene = scene_with(max_store_bytes=10 * MIB)
    kept = stock_engine(scene.parts, MODEL, 1, b"plan")
    scene.clock.turn(YEAR)
    assert "TRTFORGE_MAX_STORE_BYTES" in str(lacks(scene.parts, 11 * MIB))
    assert went(scene) == []
    assert is_there(scene.parts, kept)
    assert lacks(scene.parts, 10 * MIB)  # this would fit, were the store empty
    assert kept.engine_key in went(scene)


def test_a_file_that_is_not_ours_does_not_end_the_runs(scene_with: Open):
    scene = scene_with(engine_max_age_s=YEAR)
    kept = stock_engine(scene.parts, MODEL, 1, b"plan")
    for kind, name in (("plans", ".copy~"), ("models", "notes"), ("manifests", "x.json"), ("inspections", "y.json")):
        path = scene.parts.settings.data_dir / "store" / kind / "ab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("someone else's")
    age_files(scene.parts)
    scene.clock.turn(2 * YEAR)
    assert kept.engine_key in went(scene)
    assert (scene.parts.settings.data_dir / "store" / "plans" / "ab" / ".copy~").exists()


def test_an_answer_that_an_engine_is_here_counts_as_a_fetch(scene_with: Open):
    scene = scene_with(engine_max_age_s=YEAR)
    done = scene.running(1)
    Conclusion(scene.parts, done).succeed(scene.put_engine(done), Past(1.0, {}))
    scene.clock.turn(2 * YEAR)
    assert scene.submit(1).disposition == "cached"
    assert went(scene, "engine") == []


def test_a_signature_that_a_kill_left_goes(scene_with: Open):
    scene = scene_with()
    kept = stock_engine(scene.parts, MODEL, 1, b"plan")
    scene.parts.store.put_signature(kept.engine_key, b"{}")
    left = f"sha256:{'9' * 64}"
    scene.parts.store.put_signature(left, b"{}")
    assert went(scene, "signature") == [left]
    assert scene.parts.store.signature(kept.engine_key)
    assert scene.parts.store.signature(left) is None


def test_one_process_at_a_time_removes(scene_with: Open):
    scene = scene_with()
    lock = try_lock(scene.parts.store.gc_lock(), {})
    assert lock
    with lock:
        assert collect(scene.parts, dry_run=True).dry_run
        with pytest.raises(Refused) as caught:
            collect(scene.parts, dry_run=False)
    assert caught.value.code == "gc_running"
    assert not collect(scene.parts, dry_run=False).dry_run


def test_what_is_pinned_or_fetched_after_the_look_stays(scene_with: Open):
    scene = scene_with(engine_max_age_s=YEAR)
    made = [stock_engine(scene.parts, MODEL, n, b"plan %d" % n) for n in range(4)]
    scene.clock.turn(2 * YEAR)
    found = list(steps(Look(scene.parts, scene.clock(), 0, 0)))
    assert len(found) == 4
    with scene.parts.database.write() as tx:
        engines.pin(tx, made[0].engine_key, True)
        engines.fetched(tx, made[1].plan.digest, scene.clock())
    lock = try_lock(scene.parts.store.key_lock(made[2].engine_key), {"build": "bld_1"})
    assert lock
    with lock:
        assert [bool(step.remove()) for step in found].count(True) == 1
    assert [is_there(scene.parts, one) for one in made] == [True, True, True, False]

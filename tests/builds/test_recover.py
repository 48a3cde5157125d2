"""What a dead worker left is taken back once, and the dead can write nothing afterwards."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from app.builds import ending, stopping
from app.builds.claim import Claims
from app.builds.conclude import Conclusion
from app.builds.recover import recover
from app.builds.register import forget_workers, register
from app.db import builds, targets
from app.db.builds import BuildRow
from app.errors import LeaseLost
from app.worker.locks import try_lock
from tests.scene import ANYONE, PROBED, Scene, at_once, check_invariants, fine, why
from trtforge.contract import events as ev

HOLD = """
import json, sys
from pathlib import Path
from app.worker.locks import try_lock
lock = try_lock(Path(sys.argv[1]), json.loads(sys.argv[2]))
assert lock
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def _held_elsewhere(scene: Scene, row: BuildRow, **holder: object) -> Iterator[None]:
    """Another process holds the key's lock until the end."""
    path = scene.parts.store.key_lock(row.engine_key)
    command = [sys.executable, "-c", HOLD, str(path), json.dumps({"build": row.id, "attempt": row.attempt, **holder})]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        yield
        process.kill()


@pytest.fixture
def after(scene: Scene) -> Iterator[Scene]:
    """The process that comes after the one of `scene`."""
    later = scene.reopened()
    yield later
    later.parts.store.close()
    later.parts.database.close()


def _expired(scene: Scene, row: BuildRow) -> None:
    scene.clock.turn(scene.parts.settings.lease_s + 1)
    assert scene.build(row.id).lease_until < scene.clock()  # type: ignore[operator]


def _recovered(scene: Scene, count: int = 1) -> None:
    assert recover(scene.parts) == count
    check_invariants(scene.parts.database)


def test_a_worker_beside_others_lives_as_long_as_its_process(scene: Scene, after: Scene) -> None:
    """One process has a worker for each GPU."""
    second = f"{scene.worker}.1"
    register(scene.parts, second, PROBED, owner=scene.worker)
    queued = scene.queued()
    row = Claims(scene.parts, second, scene.target)._claim(queued)
    assert row
    assert row.worker == second
    _recovered(after, 0)
    scene.die()
    _recovered(after)
    assert scene.build(row.id).state == "queued"
    forget_workers(scene.parts, [scene.worker])
    with scene.parts.database.read() as tx:
        assert {worker.owner for worker in targets.workers_known(tx)} == {after.worker}


def test_a_living_worker_is_left_alone(scene: Scene, after: Scene) -> None:
    row = scene.running()
    _recovered(after, 0)
    scene.clock.turn(scene.parts.settings.lease_s - 0.001)
    _recovered(after, 0)
    assert scene.build(row.id) == row


def test_a_dead_worker_of_this_host_is_known_at_once(scene: Scene, after: Scene) -> None:
    row = scene.running()
    scene.die()
    _recovered(after)
    now = after.build(row.id)
    assert (now.state, now.losses, now.attempt, now.worker, now.lease_until) == ("queued", 1, 1, None, None)
    assert after.kinds(row.id)[-1] == "requeued"
    assert (now.stage, now.started_at, now.progress) == (None, None, None)


def test_a_worker_elsewhere_is_lost_when_its_lease_is_over(scene: Scene, after: Scene) -> None:
    row = scene.running()
    _expired(scene, row)
    _recovered(after)
    assert after.build(row.id).state == "queued"
    _recovered(after, 0)


def test_a_renewed_lease_counts(scene: Scene, after: Scene) -> None:
    row = scene.running()
    scene.clock.turn(10)
    with scene.parts.database.write() as tx:
        assert builds.renew(tx, row.id, 1, scene.clock() + timedelta(seconds=15), None)
    scene.clock.turn(10)
    _recovered(after, 0)


def test_the_third_loss_ends_the_build(scene: Scene, after: Scene) -> None:
    asked = scene.submit()
    assert asked.build
    for losses in (1, 2):
        row = scene.claim(asked.build.id)
        _expired(scene, row)
        _recovered(after)
        assert (after.build(row.id).state, after.build(row.id).losses) == ("queued", losses)
    row = scene.claim(asked.build.id)
    _expired(scene, row)
    _recovered(after)
    ended = after.build(row.id)
    assert (ended.state, ended.losses, ended.attempt) == ("failed", 3, 3)
    assert ended.failure
    assert (ended.failure["code"], ended.failure["retryable"]) == ("worker_lost", True)
    assert after.request(asked.request_id).state == "failed"
    assert after.submit().disposition == "created"


def test_a_build_given_back_by_a_shutdown_counts_no_loss(scene: Scene) -> None:
    row = scene.running()
    for _ in range(4):
        Conclusion(scene.parts, row).halt("monitor")
        assert (scene.build(row.id).state, scene.build(row.id).losses) == ("queued", 0)
        row = scene.claim(row.id)
    check_invariants(scene.parts.database)


def test_asked_to_stop_and_lost_is_cancelled(scene: Scene, after: Scene) -> None:
    asked = scene.submit()
    assert asked.build
    row = scene.claim(asked.build.id)
    stopping.cancel(scene.parts, row.id, ANYONE, "enough", force=False)
    scene.clock.turn(4)
    scene.die()
    _recovered(after)
    ended = after.build(row.id)
    assert (ended.state, ended.ended_by, ended.stop_seconds) == ("cancelled", "worker_lost", 4.0)
    assert after.request(asked.request_id).state == "cancelled"


def test_out_of_time_and_lost_is_failed(scene: Scene, after: Scene) -> None:
    row = scene.running(run_timeout_s=5)
    scene.clock.turn(6)
    stopping.time_out(scene.parts)
    scene.die()
    _recovered(after)
    ended = after.build(row.id)
    assert (ended.state, ended.ended_by, ended.failure and ended.failure["code"]) == (
        "failed",
        "worker_lost",
        "run_timeout",
    )


def test_an_engine_that_is_whole_in_the_store_is_a_success(scene: Scene, after: Scene) -> None:
    asked = scene.submit()
    assert asked.build
    row = scene.claim(asked.build.id)
    Conclusion(scene.parts, row).enter_publish()
    manifest = scene.put_engine(row)
    scene.die()
    _recovered(after)
    ended = after.build(row.id)
    assert (ended.state, ended.plan_digest) == ("succeeded", manifest.plan.digest)
    assert after.request(asked.request_id).served_key == row.engine_key
    assert after.submit().disposition == "cached"


@pytest.mark.parametrize("damage", ["plan gone", "plan changed", "manifest cut"])
def test_a_damaged_engine_is_built_again(scene: Scene, after: Scene, damage: str) -> None:
    row = scene.running()
    Conclusion(scene.parts, row).enter_publish()
    manifest = scene.put_engine(row)
    path = scene.parts.store.open_plan(manifest.plan.digest)
    if damage == "plan gone":
        path.unlink()
    elif damage == "plan changed":
        path.chmod(0o644)
        path.write_bytes(b"x" * manifest.plan.size)
    else:
        (written,) = path.parents[2].glob("manifests/*/*.json")
        written.chmod(0o644)
        written.write_bytes(written.read_bytes()[:100])
    scene.die()
    _recovered(after)
    assert after.build(row.id).state == "queued"
    assert after.parts.store.manifest(row.engine_key) is None
    assert not after.parts.store.damaged(row.engine_key)
    assert after.engine(row.engine_key) is None
    again = after.claim(row.id)
    Conclusion(after.parts, again).succeed(after.put_engine(again))
    assert after.submit().disposition == "cached"
    check_invariants(after.parts.database)


def test_open_phases_are_closed(scene: Scene, after: Scene) -> None:
    row = scene.running()
    opened: list[ev.StoredEvent] = [
        ev.PhaseStarted(at=scene.clock(), phase=ev.Phase(id=i, parent=i - 1 or None, name=f"p{i}", steps=None))
        for i in (1, 2, 3)
    ]
    closed = ev.PhaseFinished(at=scene.clock(), phase=ev.PhaseId(id=2), elapsed_s=1.0)
    with scene.parts.database.write() as tx:
        assert builds.append(tx, row.id, 1, [*opened, closed])
    scene.die()
    _recovered(after)
    *_, inner, outer, last = after.events(row.id)
    assert last.type == "requeued"
    assert isinstance(inner, ev.PhaseFinished)
    assert isinstance(outer, ev.PhaseFinished)
    assert (inner.phase.id, outer.phase.id) == (3, 1)


def test_an_attempt_that_was_given_up_can_write_nothing(scene: Scene, after: Scene) -> None:
    asked = scene.submit()
    assert asked.build
    old = scene.claim(asked.build.id)
    _expired(scene, old)
    _recovered(after)
    _can_write_nothing(scene, old)
    after.claim(old.id)
    _can_write_nothing(scene, old)
    assert after.engine(old.engine_key) is None
    assert after.request(asked.request_id).state == "waiting"
    check_invariants(scene.parts.database)


def _can_write_nothing(scene: Scene, old: BuildRow) -> None:
    before, events = scene.build(old.id), scene.events(old.id)
    conclusion, manifest = Conclusion(scene.parts, old), scene.put_engine(old)
    writes: tuple[Callable[[], object], ...] = (
        conclusion.enter_publish,
        lambda: conclusion.succeed(manifest),
        lambda: conclusion.fail(why()),
        lambda: conclusion.halt("monitor"),
    )
    for write in writes:
        with pytest.raises(LeaseLost):
            write()
    with scene.parts.database.write() as tx:
        late = ev.Log(at=scene.clock(), level="error", text="late")
        assert builds.append(tx, old.id, 1, [late]) is None
        assert builds.renew(tx, old.id, 1, scene.clock() + timedelta(days=1), None) is False
        assert builds.settle(tx, old.id, 1, "failed", [late]) is None
        assert not ending.give_back(tx, old, "late", 0, [], scene.clock())
    assert (scene.build(old.id), scene.events(old.id)) == (before, events)


def test_a_slow_attempt_that_still_holds_its_key_is_waited_for(scene: Scene, after: Scene) -> None:
    row = scene.running()
    _expired(scene, row)
    with _held_elsewhere(scene, row):
        _recovered(after, 0)
        assert after.build(row.id) == row
        with scene.parts.database.write() as tx:
            assert builds.renew(tx, row.id, 1, scene.clock() + timedelta(seconds=15), None), "and it may speak again"
        scene.clock.turn(16)
        _recovered(after, 0)
    _recovered(after)
    assert after.build(row.id).state == "queued"


def test_a_key_that_another_build_holds_is_no_reason_to_wait(scene: Scene, after: Scene) -> None:
    row = scene.running()
    _expired(scene, row)
    with _held_elsewhere(scene, row, attempt=2):
        _recovered(after)
    assert after.build(row.id).state == "queued"


def test_asked_to_stop_ends_although_the_key_is_held(scene: Scene, after: Scene) -> None:
    row = scene.running()
    stopping.cancel(scene.parts, row.id, ANYONE, None, force=False)
    _expired(scene, row)
    with _held_elsewhere(scene, row):
        _recovered(after)
    assert after.build(row.id).state == "cancelled"


def test_recovery_leaves_no_lock_behind(scene: Scene, after: Scene) -> None:
    row = scene.running()
    _expired(scene, row)
    _recovered(after)
    lock = try_lock(after.parts.store.key_lock(row.engine_key), {})
    assert lock
    lock.release()


def test_two_recover_at_once(scene: Scene, after: Scene) -> None:
    rows = [scene.running(n) for n in range(8)]
    _expired(scene, rows[0])
    taken = fine(at_once(lambda: recover(scene.parts), lambda: recover(after.parts)))
    assert sum(taken) == 8 or recover(after.parts) == 8 - sum(taken)
    assert [after.build(r.id).losses for r in rows] == [1] * 8
    check_invariants(after.parts.database)

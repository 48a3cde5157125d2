"""Building again only to compare: shared, fenced and cancelled as every build is, and never in the engine's way."""

from pathlib import Path

import pytest

from app.builds import stopping
from app.builds.conclude import Conclusion
from app.builds.ending import Rebuilt
from app.builds.rebuild import compare_again, first_difference, rebuild
from app.builds.removal import remove
from app.builds.views import find_build, find_request
from app.domain.estimate import Past
from app.errors import LeaseLost, Refused
from tests.builds.chain import engine
from tests.scene import ANN, ANYONE, BOB, BUILT, ROOT, Scene, check_invariants
from trtforge.contract.builds import Build
from trtforge.contract.engines import Manifest

PAST = Past(total_s=1.0, marks={})


@pytest.fixture
def made(scene: Scene) -> Manifest:
    return engine(scene, 0)


def asked(scene: Scene, made: Manifest) -> tuple[str, str]:
    """Ask for a rebuild; return the ids of build and request."""
    answer = rebuild(scene.parts, made.engine_key, ANYONE, None)
    assert answer.build
    return answer.build.id, answer.request_id


def plan_at(scene: Scene, content: bytes) -> Path:
    path = scene.parts.store.scratch("rebuild") / "plan"
    path.write_bytes(content)
    return path


def concluded(scene: Scene, build_id: str, content: bytes) -> Build:
    """Run a queued rebuild that makes `content`, as a slot does."""
    row = scene.claim(build_id)
    conclusion = Conclusion(scene.parts, row)
    assert conclusion.enter_publish()
    conclusion.compared(compare_again(scene.parts, row, BUILT, plan_at(scene, content)), PAST)
    check_invariants(scene.parts.database)
    found = find_build(scene.parts, build_id)
    assert found
    return found


def stored(scene: Scene, made: Manifest) -> bytes:
    return scene.parts.store.open_plan(made.plan.digest).read_bytes()


def test_the_same_bytes_are_identical_and_nothing_changes(scene: Scene, made: Manifest):
    build_id, request_id = asked(scene, made)
    ended = concluded(scene, build_id, stored(scene, made))
    assert ended.rebuild
    assert (ended.rebuild.identical, ended.rebuild.differs) == (True, ())
    assert (ended.engine_key, ended.state) == (made.engine_key, "succeeded")
    assert list(scene.parts.store.manifests()) == [made]
    request = find_request(scene.parts, request_id)
    assert request
    assert request.served
    assert request.served.engine_key == made.engine_key


def test_other_bytes_are_told_and_not_kept(scene: Scene, made: Manifest):
    before = stored(scene, made)
    ended = concluded(scene, asked(scene, made)[0], before[:5] + b"?" + before[6:] + b"longer")
    assert ended.rebuild
    assert ended.rebuild.identical is False
    assert [d.field for d in ended.rebuild.differs] == ["plan.digest", "plan.size"]
    assert ended.rebuild.first_difference == 5
    assert ended.engine
    assert ended.rebuild.plan == made.plan != ended.engine.plan
    assert not scene.parts.store.has_plan(ended.engine.plan.digest, ended.engine.plan.size)
    assert stored(scene, made) == before
    found = scene.engine(made.engine_key)
    assert found
    assert found.plan == made.plan


def test_rebuilds_share_one_build_and_who_wants_the_engine_has_it_meanwhile(scene: Scene, made: Manifest):
    build_id, _ = asked(scene, made)
    again = rebuild(scene.parts, made.engine_key, ANYONE, None)
    assert (again.disposition, again.build and again.build.id) == ("joined", build_id)
    assert scene.submit(0).disposition == "cached"
    remove(scene.parts, made.engine_key)  # queued, a rebuild holds nothing of the engine's
    fresh = scene.submit(0)
    assert fresh.disposition == "created"
    assert fresh.build
    assert fresh.build.id != build_id
    ended = concluded(scene, build_id, b"other")
    assert ended.rebuild
    assert ended.rebuild.first_difference is None  # the bytes to compare with are gone
    assert scene.engine(made.engine_key) is None
    assert rebuild_code(scene, made.engine_key) == "not_found"


def rebuild_code(scene: Scene, key: str) -> str:
    with pytest.raises(Refused) as caught:
        rebuild(scene.parts, key, ANN, None)
    return caught.value.code


def test_a_key_sent_twice_counts_once(scene: Scene, made: Manifest):
    one, other = (rebuild(scene.parts, made.engine_key, ANN, "once") for _ in range(2))
    assert one.request_id == other.request_id
    second = engine(scene, 1)
    with pytest.raises(Refused, match="idempotency_mismatch"):
        rebuild(scene.parts, second.engine_key, ANN, "once")
    assert rebuild(scene.parts, made.engine_key, BOB, "once").request_id != one.request_id


def test_an_attempt_that_lost_it_ends_nothing_and_a_cancel_ends_it_as_any(scene: Scene, made: Manifest):
    build_id, _ = asked(scene, made)
    old = scene.claim(build_id)
    stale = Conclusion(scene.parts, old)
    stale.halt("between_stages")  # given back: another attempt takes it
    scene.claim(build_id)
    with pytest.raises(LeaseLost):
        stale.compared(Rebuilt(made.plan, ()), PAST)
    stopping.cancel(scene.parts, build_id, ROOT, None, True)
    row = scene.build(build_id)
    assert row.stop == "cancel"
    assert not Conclusion(scene.parts, row).enter_publish()
    Conclusion(scene.parts, row).halt("monitor")
    ended = find_build(scene.parts, build_id)
    assert ended
    assert ended.state == "cancelled"
    assert ended.rebuild
    assert ended.rebuild.identical is None
    assert asked(scene, made)[0] != build_id


def test_the_first_difference_is_found_across_pieces_and_ends(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    large = bytes(1 << 20)
    for a, b, offset in [
        (b"", b"", None),
        (b"abc", b"abd", 2),
        (b"abc", b"ab", 2),
        (large + b"x", large + b"y", 1 << 20),
        (large, large + b"y", 1 << 20),
    ]:
        one.write_bytes(a)
        other.write_bytes(b)
        assert first_difference(one, other) == offset
    one.unlink()
    assert first_difference(one, other) is None

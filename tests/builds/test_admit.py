"""Limits on what may wait: exact however many ask at once, and never in the way of what adds nothing."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.builds import ending
from app.builds.parts import Caller
from app.builds.prebuild import CALLER
from app.errors import Refused
from tests.scene import ANN, ANYONE, BOB, ROOT, Scene, at_once, check_invariants, opened, why
from trtforge.contract.builds import Submitted

MOST, EACH = 5, 3


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(database_url, tmp_path, max_queue=MOST, max_requests_per_token=EACH) as one:
        yield one


def too_many(work: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        work()
    assert caught.value.code == "too_many"
    assert caught.value.retry_after
    return caught.value


def test_a_full_queue_takes_no_build_and_gives_what_it_has(scene: Scene):
    built = scene.running(0)
    manifest = scene.put_engine(built)
    with scene.parts.database.write() as tx:
        assert ending.succeed(tx, built.id, built.attempt, manifest, [], scene.clock())
    for number in range(1, MOST + 1):
        assert scene.submit(number).disposition == "created"
    refused = too_many(lambda: scene.submit(99))
    assert refused.detail.startswith(f"{MOST} builds are queued")
    assert "TRTFORGE_MAX_QUEUE" in refused.detail
    too_many(lambda: scene.submit(99, ROOT))
    assert scene.submit(1, BOB).disposition == "joined"
    assert scene.submit(0, BOB).disposition == "cached"
    scene.claim(scene.submit(2).build.id)  # type: ignore[union-attr]
    assert scene.submit(99).disposition == "created"
    check_invariants(scene.parts.database)


def test_what_was_refused_left_nothing(scene: Scene):
    for number in range(MOST):
        scene.submit(number)
    too_many(lambda: scene.submit(99, key="once", body=b"x"))
    with scene.parts.database.read() as tx:
        assert tx.exec_driver_sql("select count(*) from requests").scalar_one() == MOST
        assert tx.exec_driver_sql("select count(*) from builds").scalar_one() == MOST
    scene.claim(scene.submit(0).build.id)  # type: ignore[union-attr]
    assert scene.submit(99, key="once", body=b"x").disposition == "created"  # the same key is free


def test_a_token_waits_for_so_much_and_others_do_not_care(scene: Scene):
    first = scene.submit(0, ANN)
    for _ in range(EACH - 1):
        assert scene.submit(0, ANN).disposition == "joined"
    refused = too_many(lambda: scene.submit(0, ANN))
    assert "TRTFORGE_MAX_REQUESTS_PER_TOKEN" in refused.detail
    too_many(lambda: scene.submit(1, ANN))
    assert scene.submit(0, BOB).disposition == "joined"
    assert scene.build(first.build.id).requests == EACH + 1  # type: ignore[union-attr]
    row = scene.claim(first.build.id)  # type: ignore[union-attr]
    with scene.parts.database.write() as tx:
        assert ending.fail(tx, scene.parts, row, why(), [], scene.clock())
    assert scene.submit(1, ANN).disposition == "created"  # nothing waits any longer
    check_invariants(scene.parts.database)


def test_without_tokens_and_for_what_the_operator_listed_there_is_no_such_limit(scene: Scene):
    for _ in range(EACH * 2):
        scene.submit(0, ANYONE)
    for number in range(MOST * 2):
        assert scene.submit(number + 10, CALLER).disposition == "created"


def test_a_fallback_at_submit_counts_as_what_it_is(scene: Scene):
    for number in range(1, MOST):
        scene.submit(number)
    row = scene.running(0)
    with scene.parts.database.write() as tx:
        assert ending.fail(tx, scene.parts, row, why(), [], scene.clock())
    scene.clock.turn(1)
    cheaper: dict[str, Any] = {"fallback": [{"spec": {"optimization_level": 0}}]}
    fell = scene.submit(0, **cheaper)
    assert fell.build
    assert fell.build.follows == row.id
    scene.submit(0, **cheaper)  # joins that one, though the queue is full
    too_many(lambda: scene.submit(0, fallback=[{"spec": {"optimization_level": 1}}]))
    check_invariants(scene.parts.database)


def test_many_at_once_do_not_slip_through(scene: Scene):
    other = scene.reopened()
    many = [Caller(f"token {n}", admin=False, anonymous=False) for n in range(12)]
    queue = at_once(*(partial((scene, other)[n % 2].submit, n, caller) for n, caller in enumerate(many)))
    assert sum(isinstance(answer, Submitted) for answer in queue) == MOST
    assert {a.code for a in queue if isinstance(a, Refused)} == {"too_many"}
    scene.claim(next(a.build.id for a in queue if isinstance(a, Submitted) and a.build))
    joined = at_once(*(partial((scene, other)[n % 2].submit, 50, ANN) for n in range(12)))
    assert sum(isinstance(answer, Submitted) for answer in joined) == EACH
    assert {a.code for a in joined if isinstance(a, Refused)} == {"too_many"}
    check_invariants(scene.parts.database)

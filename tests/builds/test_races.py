"""Two things at once, many times: whatever comes first, the rows agree afterwards."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from app.builds import stopping
from app.builds.conclude import Conclusion
from app.db.builds import BuildRow
from app.errors import Busy, LeaseLost, Refused
from tests.scene import ANN, ANYONE, BOB, Scene, at_once, check_invariants, why
from trtforge.contract.builds import Submitted

ROUNDS = 50  # per pair and database; each on a key of its own, checked together at the end


def _race(
    scene: Scene, round_: Callable[[int], tuple[Callable[[], object], Callable[[], object]]], rounds: int = ROUNDS
) -> list[list[object]]:
    """Run both of each round at once; only refusals of ours may come back as errors."""
    ends = []
    for number in range(rounds):
        answers = at_once(*round_(number))
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Refused | LeaseLost):
                raise answer
        ends.append(list(answers))
    check_invariants(scene.parts.database)
    return ends


def _code(answer: object) -> str | None:
    return answer.code if isinstance(answer, Refused) else None


def _end(scene: Scene, build_id: str, ended_by: str = "monitor") -> None:
    """Do what the supervisor does for a build that was asked to stop."""
    row = scene.build(build_id)
    if row.state == "running":
        Conclusion(scene.parts, row).halt(ended_by)  # type: ignore[arg-type]


def test_join_against_the_last_withdrawal(scene: Scene) -> None:
    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        first = scene.submit(n)
        assert first.build
        if n % 2:
            scene.claim(first.build.id)
        return lambda: scene.submit(n, caller=BOB), lambda: stopping.withdraw(scene.parts, first.request_id, None)

    for joined, withdrawn in _race(scene, round_):
        assert withdrawn is None
        assert isinstance(joined, Submitted)
        assert joined.build
        row = scene.build(joined.build.id)
        assert (row.requests, row.stop) == (1, None), "the one who joined has a build that goes on"
        assert scene.request(joined.request_id).state == "waiting"


@pytest.mark.parametrize("how", ["succeed", "fail"])
def test_join_against_the_end(scene: Scene, how: str) -> None:
    rows: list[BuildRow] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        row = scene.running(n)
        rows.append(row)
        conclusion = Conclusion(scene.parts, row)
        if how == "fail":
            return lambda: conclusion.fail(why()), lambda: scene.submit(n)
        manifest = scene.put_engine(row)
        conclusion.enter_publish()
        return lambda: conclusion.succeed(manifest), lambda: scene.submit(n)

    after = {"succeed": "cached", "fail": "known_failure"}[how]
    for row, (ended, asked) in zip(rows, _race(scene, round_), strict=True):
        assert ended is None
        assert isinstance(asked, Submitted)
        assert asked.disposition in ("joined", after)
        request = scene.request(asked.request_id)
        assert request.state == {"succeed": "served", "fail": "failed"}[how]
        assert asked.build is None or asked.build.id == row.id


def test_cancel_against_publish(scene: Scene) -> None:
    rows: list[BuildRow] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        row = scene.running(n)
        rows.append(row)
        conclusion = Conclusion(scene.parts, row)
        return lambda: stopping.cancel(scene.parts, row.id, ANYONE, None, False), conclusion.enter_publish

    for row, (cancelled, entered) in zip(rows, _race(scene, round_), strict=True):
        assert (cancelled is None, entered) in ((True, False), (False, True)), (cancelled, entered)
        assert _code(cancelled) in (None, "publishing")
        now = scene.build(row.id)
        assert (now.stop is None) == (now.stage == "publish")


def test_cancel_against_join(scene: Scene) -> None:
    """Either the canceller is told that the build is shared, or the other one gets a new build."""
    rows: list[BuildRow] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        row = scene.queued(n, caller=ANN)
        rows.append(scene.claim(row.id) if n % 2 else row)
        return lambda: stopping.cancel(scene.parts, row.id, ANN, None, False), lambda: scene.submit(n, caller=BOB)

    for row, (cancelled, asked) in zip(rows, _race(scene, round_), strict=True):
        assert isinstance(asked, Submitted)
        assert asked.build
        assert _code(cancelled) == ("build_shared" if asked.disposition == "joined" else None)
        assert scene.build(row.id).stop == (None if asked.disposition == "joined" else "cancel")
        assert scene.request(asked.request_id).state == "waiting"


def test_cancel_against_claim(scene: Scene) -> None:
    rows: list[BuildRow] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        row = scene.queued(n)
        rows.append(row)

        def claim() -> object:
            try:
                return scene.claim(row.id)
            except AssertionError:
                return None

        return lambda: stopping.cancel(scene.parts, row.id, ANYONE, None, False), claim

    for row, (cancelled, claimed) in zip(rows, _race(scene, round_), strict=True):
        assert cancelled is None
        now = scene.build(row.id)
        assert (now.state, now.stop) == ("running" if claimed else "cancelled", "cancel")


def test_cancel_against_giving_back(scene: Scene) -> None:
    """A build that is asked to stop while its worker shuts down must not lie in the queue with nobody to end it."""
    rows: list[BuildRow] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        row = scene.running(n)
        rows.append(row)
        conclusion = Conclusion(scene.parts, row)
        return lambda: stopping.cancel(scene.parts, row.id, ANYONE, None, False), lambda: conclusion.halt("monitor")

    for row, answers in zip(rows, _race(scene, round_), strict=True):
        assert answers == [None, None]
        assert scene.build(row.id).state == "cancelled"


def test_two_withdraw_the_same_request(scene: Scene) -> None:
    answers_of: list[Submitted] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        first, _ = scene.submit(n), scene.submit(n)
        answers_of.append(first)
        return (lambda: stopping.withdraw(scene.parts, first.request_id, "a"),) * 2

    for first, answers in zip(answers_of, _race(scene, round_), strict=True):
        assert answers == [None, None]
        assert first.build
        assert scene.build(first.build.id).requests == 1
        assert scene.kinds(first.build.id).count("withdrawn") == 1


def test_the_last_two_withdraw_at_once(scene: Scene) -> None:
    firsts: list[Submitted] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        one, two = scene.submit(n), scene.submit(n)
        firsts.append(one)
        assert one.build
        if n % 2:
            scene.claim(one.build.id)
        return (
            lambda: stopping.withdraw(scene.parts, one.request_id, None),
            lambda: stopping.withdraw(scene.parts, two.request_id, None),
        )

    for n, (first, answers) in enumerate(zip(firsts, _race(scene, round_), strict=True)):
        assert answers == [None, None]
        assert first.build
        row = scene.build(first.build.id)
        assert (row.state, row.stop, row.requests) == ("running" if n % 2 else "cancelled", "cancel", 0)


def test_withdraw_against_the_end(scene: Scene) -> None:
    firsts: list[Submitted] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        first = scene.submit(n)
        firsts.append(first)
        assert first.build
        conclusion = Conclusion(scene.parts, scene.claim(first.build.id))
        return lambda: stopping.withdraw(scene.parts, first.request_id, None), lambda: conclusion.fail(why())

    for first, (withdrawn, failed) in zip(firsts, _race(scene, round_), strict=True):
        assert failed is None
        state = scene.request(first.request_id).state
        assert (state, _code(withdrawn)) in (("withdrawn", None), ("failed", "already_ended"))


def test_time_out_against_claim(scene: Scene) -> None:
    firsts: list[Submitted] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        first = scene.submit(n, queue_timeout_s=10, run_timeout_s=1000)
        firsts.append(first)
        assert first.build
        build_id = first.build.id
        scene.clock.turn(11)

        def claim() -> object:
            try:
                return scene.claim(build_id)
            except AssertionError:
                return None

        return lambda: stopping.time_out(scene.parts), claim

    for first, (_, claimed) in zip(firsts, _race(scene, round_), strict=True):
        assert first.build
        row, request = scene.build(first.build.id), scene.request(first.request_id)
        if claimed and row.stop is None:
            assert (row.state, request.state) == ("running", "waiting")
        else:
            assert request.state == "failed"
            assert request.failure
            assert request.failure["code"] == "queue_timeout"
            assert row.state == "failed"


def test_two_workers_claim_one_build(scene: Scene) -> None:
    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        row = scene.queued(n)

        def claim() -> object:
            try:
                return scene.claim(row.id)
            except AssertionError:
                return None

        return claim, claim

    for answers in _race(scene, round_):
        assert sum(a is not None for a in answers) == 1


def test_two_end_one_build(scene: Scene) -> None:
    """The supervisor and recovery: exactly one of them writes the end."""

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        row = scene.running(n)
        return lambda: Conclusion(scene.parts, row).fail(why()), lambda: Conclusion(scene.parts, row).halt("monitor")

    for answers in _race(scene, round_):
        assert sum(isinstance(a, LeaseLost) for a in answers) == 1


def test_two_builds_whose_requests_fall_back_to_each_other(scene: Scene) -> None:
    """Each end takes the other build's row: the database sees the circle, one of them tries again, nothing hangs."""
    rows: list[BuildRow] = []

    def to(spec: int) -> list[object]:
        return [{"spec": {"workspace_bytes": (1 << 20) + spec}}]

    def fail(row: BuildRow) -> Callable[[], object]:
        def work() -> None:
            while True:
                with suppress(Busy):
                    return Conclusion(scene.parts, row).fail(why())

        return work

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        pair = [
            scene.running(2 * n, fallback=to(2 * n + 1)),
            scene.running(2 * n + 1, fallback=to(2 * n)),
        ]
        rows.extend(pair)
        return fail(pair[0]), fail(pair[1])

    for answers in _race(scene, round_, 5):
        assert answers == [None, None]
    assert {scene.build(r.id).state for r in rows} == {"failed"}


def test_a_request_that_falls_back_while_it_is_withdrawn(scene: Scene) -> None:
    firsts: list[Submitted] = []

    def round_(n: int) -> tuple[Callable[[], object], Callable[[], object]]:
        step = {"spec": {"workspace_bytes": (1 << 20) + 1000 + n}}
        first = scene.submit(n, fallback=[step])
        firsts.append(first)
        assert first.build
        conclusion = Conclusion(scene.parts, scene.claim(first.build.id))
        return lambda: stopping.withdraw(scene.parts, first.request_id, None), lambda: conclusion.fail(why())

    for first, answers in zip(firsts, _race(scene, round_), strict=True):
        assert answers == [None, None]
        assert scene.request(first.request_id).state == "withdrawn"

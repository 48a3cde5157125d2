"""Any order of everything that can happen to builds: the rows agree after each step."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from app.builds import stopping
from app.builds.conclude import Conclusion
from app.builds.recover import recover
from app.db import builds
from app.db.builds import BuildRow
from app.errors import LeaseLost, Refused
from tests.scene import ANN, ANYONE, BOB, ROOT, Scene, check_invariants, opened, why
from trtforge.contract import events as ev
from trtforge.contract.builds import EndedBy

KEYS = 2  # few, so that things meet
CALLERS = st.sampled_from([ANN, BOB, ROOT, ANYONE])
EXPECTED = {"quarantined", "build_shared", "publishing", "already_ended", "idempotency_mismatch", "forbidden"}
pick = st.integers(0, 1000)


def _step(to: int | str) -> object:
    return to if isinstance(to, str) else {"spec": {"workspace_bytes": (1 << 20) + to}}


class Everything(RuleBasedStateMachine):
    """Attempts are remembered after they lost their build: they go on trying to write, and must not succeed."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="machine-")
        folder = Path(self._folder.name)
        self._opened = opened(self.url or f"sqlite:///{folder / 'trtforge.db'}", folder)
        self.scene: Scene = self._opened.__enter__()
        with self.scene.parts.database.write() as tx:
            for table in ("build_events", "requests", "idempotency_keys", "engines", "builds"):
                tx.exec_driver_sql(f"delete from {table}")
        self.attempts: list[BuildRow] = []
        self.asked: list[str] = []

    def teardown(self) -> None:
        self._opened.__exit__(None, None, None)
        self._folder.cleanup()

    def _try(self, work: Callable[[], object]) -> None:
        self.scene.clock.turn(0.001)
        try:
            work()
        except Refused as refused:
            if refused.code not in EXPECTED:
                raise

    def _as_attempt(self, which: int, work: Callable[[Conclusion], object]) -> None:
        """Only the attempt that owns the build may write; the others are told that they lost it."""
        row = self.attempts[which % len(self.attempts)]
        now = self.scene.build(row.id)
        owns = (now.state, now.attempt) == ("running", row.attempt)
        self.scene.clock.turn(0.001)
        try:
            work(Conclusion(self.scene.parts, row))
        except LeaseLost:
            assert not owns
        else:
            assert owns

    @rule(
        spec=st.integers(0, KEYS - 1),
        caller=CALLERS,
        priority=st.integers(-3, 3),
        retry=st.booleans(),
        key=st.sampled_from([None, "a", "b"]),
        fallback=st.lists(st.sampled_from(["existing", 0, 1]), max_size=2),
    )
    def submit(
        self, spec: int, caller: Any, priority: int, retry: bool, key: str | None, fallback: list[int | str]
    ) -> None:
        body = f"{spec} {priority} {retry} {fallback}".encode()
        options: dict[str, Any] = {"priority": priority, "retry": retry, "run_timeout_s": 40.0, "queue_timeout_s": 60.0}
        options["fallback"] = [_step(f) for f in fallback]
        self._try(lambda: self.asked.append(self.scene.submit(spec, caller, key, body, **options).request_id))

    @precondition(lambda self: self.asked)
    @rule(which=pick)
    def withdraw(self, which: int) -> None:
        self._try(lambda: stopping.withdraw(self.scene.parts, self.asked[which % len(self.asked)], None))

    @precondition(lambda self: self.asked)
    @rule(which=pick, caller=CALLERS, force=st.booleans())
    def cancel(self, which: int, caller: Any, force: bool) -> None:
        build_id = self.scene.request(self.asked[which % len(self.asked)]).build_id
        if build_id:
            self._try(lambda: stopping.cancel(self.scene.parts, build_id, caller, None, force))

    @rule()
    def claim(self) -> None:
        if claimed := self.scene.pick():
            claimed.release()  # as a worker that is gone: what holds a key is for another test
            self.attempts.append(claimed.row)

    @precondition(lambda self: self.attempts)
    @rule(which=pick)
    def append(self, which: int) -> None:
        row = self.attempts[which % len(self.attempts)]
        now = self.scene.build(row.id)
        said = ev.Log(at=self.scene.clock(), level="warning", text="hm")
        opened_ = ev.PhaseStarted(at=self.scene.clock(), phase=ev.Phase(id=1, parent=None, name="p", steps=None))
        with self.scene.parts.database.write() as tx:
            stored = builds.append(tx, row.id, row.attempt, [said, opened_])
        assert (stored is not None) == ((now.state, now.attempt) == ("running", row.attempt))

    @precondition(lambda self: self.attempts)
    @rule(which=pick)
    def enter_publish(self, which: int) -> None:
        def enter(conclusion: Conclusion) -> None:
            row = self.attempts[which % len(self.attempts)]
            stopped = self.scene.build(row.id).stop is not None
            assert conclusion.enter_publish() != stopped

        self._as_attempt(which, enter)

    @precondition(lambda self: self.attempts)
    @rule(which=pick)
    def succeed(self, which: int) -> None:
        row = self.attempts[which % len(self.attempts)]
        if self.scene.build(row.id).stage != "publish":
            return
        manifest = self.scene.put_engine(row)
        self._as_attempt(which, lambda c: c.succeed(manifest))

    @precondition(lambda self: self.attempts)
    @rule(which=pick, code=st.sampled_from(["builder_error", "builder_crashed", "builder_killed"]))
    def fail(self, which: int, code: str) -> None:
        self._as_attempt(which, lambda c: c.fail(why(code)))

    @precondition(lambda self: self.attempts)
    @rule(which=pick, ended_by=st.sampled_from(["monitor", "killed", "between_stages"]))
    def halt(self, which: int, ended_by: EndedBy) -> None:
        """Asked to stop: it ends; else the worker shuts down and gives it back. After publish began neither happens."""
        row = self.attempts[which % len(self.attempts)]
        if self.scene.build(row.id).stage != "publish":
            self._as_attempt(which, lambda c: c.halt(ended_by))

    @rule()
    def lose_leases(self) -> None:
        self.scene.clock.turn(self.scene.parts.settings.lease_s + 1)
        recover(self.scene.parts)

    @rule()
    def recover_without_reason(self) -> None:
        with self.scene.parts.database.read() as tx:
            before = builds.running(tx)
        overdue = [b for b in before if b.lease_until and b.lease_until < self.scene.clock()]
        assert recover(self.scene.parts) == len(overdue)

    @rule(seconds=st.sampled_from([5.0, 45.0]))
    def time_out(self, seconds: float) -> None:
        self.scene.clock.turn(seconds)
        stopping.time_out(self.scene.parts)

    @rule(spec=st.integers(0, KEYS - 1))
    def lose_bytes(self, spec: int) -> None:
        for manifest in list(self.scene.parts.store.manifests()):
            if manifest.spec.effective.workspace_bytes == (1 << 20) + spec:
                self.scene.parts.store.remove_plan(manifest.plan.digest)

    @invariant()
    def the_rows_agree(self) -> None:
        check_invariants(self.scene.parts.database)


def _run(url: str, examples: int, steps: int) -> None:
    made = type("EverythingHere", (Everything,), {"url": url})
    run_state_machine_as_test(
        made,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_any_order_on_sqlite() -> None:
    _run("", 30, 50)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_any_order_on_postgres(database_url: str) -> None:
    _run(database_url, 8, 30)

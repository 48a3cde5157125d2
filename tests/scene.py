"""A service without its doors: real database, real store, real transactions; the clock is ours to turn."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import select

from app.builds.claim import Claimed, Claims
from app.builds.ending import failure
from app.builds.parts import Caller, Parts
from app.builds.publish import make_manifest, publish
from app.builds.register import register
from app.builds.submit import submit
from app.db import builds, engines, migrate, models, requests, tables
from app.db.builds import BuildRow
from app.db.events import events_after
from app.db.requests import RequestRow
from app.db.session import Database
from app.domain.ids import new_id
from app.domain.states import LIVE, allowed
from app.settings import Settings
from app.store.local import LocalStore
from app.worker.messages import Built, Probed
from trtforge.contract.builds import TERMINAL, Failure, Submit, Submitted
from trtforge.contract.engines import EngineSummary, Manifest, Timings
from trtforge.contract.events import StoredEvent, read_event
from trtforge.contract.models import Inspection, ModelFile, Tensor
from trtforge.contract.spec import BuildOptions, BuildSpec

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANYONE = Caller("anyone", admin=True, anonymous=True)
ANN, BOB = Caller("ann", admin=False, anonymous=False), Caller("bob", admin=False, anonymous=False)
ROOT = Caller("root", admin=True, anonymous=False)
MODEL = "sha256:" + "a1" * 32
WORDS = Inspection(
    opset={"": 17},
    ir_version=8,
    producer="test",
    node_count=1,
    parameter_bytes=0,
    operators={"Relu": 1},
    inputs=(Tensor(name="x", dtype="float32", shape=(1, 3), axes=(None, None)),),
    outputs=(Tensor(name="y", dtype="float32", shape=(1, 3), axes=(None, None)),),
)
PROBED = Probed("tensorrt_rtx", "1.7.1.116", "1", ["7.5", "8.9"], 3, 5, None, None, None, landlock=0)
BUILT = Built("1", {"float32": 1}, 1, 2, 3)

T = TypeVar("T")


class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> datetime:
        return self.at

    def turn(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Scene:
    """One process's view of the service. `worker` holds staging, so it counts as alive until `parts.store` is closed."""

    parts: Parts
    clock: Clock
    worker: str
    target: str

    def submit(
        self, spec: int = 0, caller: Caller = ANYONE, key: str | None = None, body: bytes = b"", **options: Any
    ) -> Submitted:
        """Ask for the engine number `spec`: each number is another engine key."""
        asked = Submit(
            model=MODEL, spec=BuildSpec(workspace_bytes=(1 << 20) + spec), options=BuildOptions.model_validate(options)
        )
        return submit(self.parts, asked, caller, key, body)

    def queued(self, spec: int = 0, **options: Any) -> BuildRow:
        answer = self.submit(spec, **options)
        assert answer.build
        return self.build(answer.build.id)

    def pick(self) -> Claimed | None:
        """Take the best build as a slot does, with both locks."""
        return Claims(self.parts, self.worker, self.target).pick(lambda: False)

    def claim(self, build_id: str) -> BuildRow:
        """Take this build without locks, as a worker that is gone by now has done."""
        row = Claims(self.parts, self.worker, self.target)._claim(self.build(build_id))
        assert row
        return row

    def running(self, spec: int = 0, **options: Any) -> BuildRow:
        return self.claim(self.queued(spec, **options).id)

    def build(self, build_id: str) -> BuildRow:
        with self.parts.database.read() as tx:
            row = builds.find(tx, build_id)
        assert row
        return row

    def request(self, request_id: str) -> RequestRow:
        with self.parts.database.read() as tx:
            row = requests.find(tx, request_id)
        assert row
        return row

    def engine(self, engine_key: str) -> EngineSummary | None:
        with self.parts.database.read() as tx:
            return engines.find(tx, engine_key)

    def events(self, build_id: str) -> list[StoredEvent]:
        with self.parts.database.read() as tx:
            return [read_event(e.body) for e in events_after(tx, build_id, 0)]  # type: ignore[misc]  # all are known

    def kinds(self, build_id: str) -> list[str]:
        return [e.type for e in self.events(build_id)]

    def put_engine(self, row: BuildRow, content: bytes = b"plan") -> Manifest:
        """Put plan and manifest into the store, and no row into the database."""
        store = self.parts.store
        folder = store.scratch("plan")
        (folder / "plan").write_bytes(content + row.engine_key.encode())
        with self.parts.database.read() as tx:
            model = models.find(tx, row.model)
        assert model
        timings = Timings(stages={}, phases=())
        kept = publish(
            self.parts,
            folder / "plan",
            lambda plan: make_manifest(row, model, BUILT, plan, timings, [], self.parts.now()),
        )
        store.discard(folder)
        return kept

    def reopened(self) -> "Scene":
        """The same service in another process's shoes: connections, staging and worker of its own."""
        return scene(self.parts.settings, self.clock)

    def die(self) -> None:
        """Free what the kernel frees when a process ends."""
        self.parts.store.close()


def scene(settings: Settings, clock: Clock | None = None) -> Scene:
    clock = clock or Clock()
    parts = Parts(settings, Database(settings.url), LocalStore(settings.data_dir / "store"), now=clock)
    migrate.upgrade(parts.database)
    worker = new_id("wrk")
    parts.store.open_staging(worker)
    with parts.database.write() as tx:
        models.add(tx, MODEL, "model.onnx", [ModelFile(name="model.onnx", digest=MODEL, size=4)], WORDS, clock())
    return Scene(parts, clock, worker, register(parts, worker, PROBED))


@contextmanager
def opened(url: str, folder: Path, **more: Any) -> Iterator[Scene]:
    settings = Settings(data_dir=folder / "data", lock_dir=folder / "locks", database_url=url, **more)
    one = scene(settings)
    try:
        yield one
    finally:
        one.parts.store.close()
        one.parts.database.close()


def why(code: str = "builder_error") -> Failure:
    return failure(code, stage="build")


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def at_once(*works: Callable[[], T]) -> list[T | BaseException]:
    """Run all in threads that start together; return what each returned or raised."""
    gate = threading.Barrier(len(works))

    def go(work: Callable[[], T]) -> T | BaseException:
        gate.wait()
        try:
            return work()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(go, works))


def fine(answers: Sequence[T | BaseException]) -> list[T]:
    """Return the answers. Raises the first error among them."""
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return list(answers)  # type: ignore[arg-type]


def check_invariants(database: Database) -> None:
    """What is true of the rows between any two transactions."""
    with database.read() as tx:
        rows = [builds.find(tx, r.id) for r in tx.execute(select(tables.builds.c.id))]
        wishes = [requests.find(tx, r.id) for r in tx.execute(select(tables.requests.c.id))]
        stored = {row.id: [read_event(e.body) for e in events_after(tx, row.id, 0)] for row in rows if row}
    joinable = [row.engine_key for row in rows if row and row.state in LIVE and row.stop is None]
    assert len(joinable) == len(set(joinable)), "two live builds of one key"
    for row in rows:
        assert row
        waiting = [w for w in wishes if w and w.build_id == row.id and w.state == "waiting"]
        _check_build(row, waiting)
        _check_events(row, stored[row.id])  # type: ignore[arg-type]


def _check_build(row: BuildRow, waiting: list[RequestRow]) -> None:
    assert row.requests == len(waiting), (row, waiting)
    assert row.state in LIVE or not waiting, "somebody waits for an ended build"
    assert row.state not in LIVE or waiting or row.stop or row.stage == "publish", "nobody waits and it is not stopped"
    assert not (row.state == "queued" and row.stop), "queued and stopped: nobody would ever end it"
    assert row.stop is None or row.stage != "publish", "stopped past its point of no return"
    assert (row.finished_at is None) == (row.state in LIVE)
    assert (row.failure is not None) == (row.state == "failed")
    assert (row.plan_digest is not None) == (row.state == "succeeded")
    if waiting and not row.stop:
        assert row.priority == max(w.options["priority"] for w in waiting)
    assert all(w.deadline for w in waiting)


def _check_events(row: BuildRow, stored: list[StoredEvent]) -> None:
    assert [e.seq for e in stored] == list(range(1, row.last_seq + 1)), "gaps"
    ends = [e.seq for e in stored if e.type in TERMINAL]
    assert ends == ([row.last_seq] if row.state in TERMINAL else []), "one terminal event, the last"
    state: Any = "queued"
    for event in stored[1:]:
        to: Any = {"started": "running", "requeued": "queued"}.get(event.type, event.type)
        if to in ("running", "queued", *TERMINAL):
            assert allowed(state, to), (state, to)
            state = to
    assert state == row.state
    assert stored[0].type == "queued"
    assert max(e.attempt for e in stored) == row.attempt

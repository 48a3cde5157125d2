"""Folding events: from a snapshot at any point on, or from the first event, the picture is the same."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtforge.contract.builds import Build, Cancel, EngineRef, Failure, LivePhase, Progress, SpecPair
from trtforge.contract.engines import PlanRef
from trtforge.contract.events import (
    Cancelled,
    CancelRequested,
    Draining,
    Event,
    Failed,
    Heartbeat,
    Joined,
    Log,
    Phase,
    PhaseFinished,
    PhaseId,
    PhaseProgress,
    PhaseStarted,
    PhaseStep,
    Queued,
    Requeued,
    Snapshot,
    StageEntered,
    Started,
    Stored,
    Succeeded,
    Waiting,
    Withdrawn,
)
from trtforge.contract.progress import Picture, fold
from trtforge.contract.spec import BuildSpec, EffectiveSpec
from trtforge.contract.target import Target

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure

START = datetime(2030, 1, 1, tzinfo=UTC)
KEY = "sha256:" + "a" * 64
TARGET = Target(builder="tensorrt_rtx", builder_version="1", compute_capabilities=("8.9",), os="linux", arch="x86_64")
EFFECTIVE = EffectiveSpec(profiles=(), precision="as_is", optimization_level=3, workspace_bytes=1)
CANCEL = Cancel(requested_at=START, by="x", reason=None, ended_by="monitor", seconds=1.0)
FAILURE = Failure(code="builder_error", message="m", remedy="r", stage="build", retryable=False)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Return a build's events as the service numbers them, with live ones between."""
    told: list[Any] = []
    live: list[int] = []
    seq, attempt, ids, running = 0, 0, 0, False

    def store(event: Stored) -> None:
        nonlocal seq
        seq += 1
        told.append(event.model_copy(update={"seq": seq, "attempt": attempt, "at": START + timedelta(seconds=seq)}))

    store(Queued(at=START))
    for choice in draw(st.lists(st.integers(0, 11), max_size=40)):
        if choice == 0:
            store(Joined(at=START, request_id="r", requests=draw(st.integers(1, 9))))
        elif choice == 1:
            store(Withdrawn(at=START, request_id="r", requests=draw(st.integers(0, 9)), reason=None))
        elif choice == 2:
            store(CancelRequested(at=START, by="x", reason=None))
        elif not running:
            if choice == 3:
                store(Waiting(at=START, waiting_for="device"))
            else:
                attempt, live, ids, running = attempt + 1, [], 0, True
                store(Started(at=START, worker="w"))
        elif choice in (3, 4, 5):
            ids += 1
            parent = draw(st.sampled_from([None, *live]))
            live.append(ids)
            store(
                PhaseStarted(
                    at=START, phase=Phase(id=ids, parent=parent, name="same", steps=draw(st.none() | st.just(5)))
                )
            )
        elif choice in (6, 7) and live:
            gone = live.pop(draw(st.integers(0, len(live) - 1)))
            store(PhaseFinished(at=START, phase=PhaseId(id=gone), elapsed_s=1.0))
        elif choice == 8 and live:
            told.append(PhaseProgress(phase=PhaseStep(id=draw(st.sampled_from(live)), step=draw(st.integers(0, 4)))))
        elif choice == 9:
            store(
                draw(st.sampled_from([StageEntered(at=START, stage="build"), Log(at=START, level="error", text="t")]))
            )
        elif choice == 10:
            told.append(Heartbeat(elapsed_s=1, silent_s=1, activity="working", cpu_s=1, rss_bytes=1))
        elif choice == 11:
            store(Requeued(at=START, reason="drained"))
            running = False
    engine = EngineRef(engine_key=KEY, plan=PlanRef(digest=KEY, size=1))
    ends = [Succeeded(at=START, engine=engine), Failed(at=START, failure=FAILURE), Cancelled(at=START, cancel=CANCEL)]
    end = draw(st.none() | st.sampled_from(ends))
    if end:
        store(end)
    return told


def snapshot(picture: Picture, now: datetime) -> Snapshot:
    """Return what the service sends for `picture`."""
    phases = tuple(
        LivePhase(
            id=p.id,
            parent=p.parent,
            name=p.name,
            step=p.step,
            steps=p.steps,
            elapsed_s=(now - p.since).total_seconds(),
        )
        for p in picture.phases.values()
    )
    progress = Progress(elapsed_s=1, silent_s=0, activity=None, cpu_s=None, rss_bytes=None, phases=phases)
    build = Build(
        id="b", state=picture.state, stage=picture.stage, engine_key=KEY, model=KEY, target=TARGET,
        spec=SpecPair(requested=BuildSpec(), effective=EFFECTIVE), attempt=picture.attempt, requests=picture.requests,
        priority=0, labels={}, queue_position=None, waiting_for=picture.waiting_for, created_at=START, started_at=None,
        finished_at=None, progress=progress if picture.state == "running" else None, cancel=None, failure=None,
        engine=None,
    )  # fmt: skip
    return Snapshot(seq=picture.seq, build=build)


def folded(events: list[Event], before: Picture | None = None) -> Picture:
    picture = before or Picture()
    for event in events:
        picture = fold(picture, event, START)
    return picture


@patient
@given(histories(), st.data())
def test_a_snapshot_at_any_point_and_the_rest_is_all(events: list[Event], data: st.DataObject):
    at = data.draw(st.integers(0, len(events)))
    now = START + timedelta(seconds=1000)
    taken = fold(Picture(), snapshot(folded(events[:at]), now), now)
    assert folded(events[at:], taken) == folded(events)
    stored = [e for e in events[:at] if isinstance(e, Stored)]  # what is replayed behind a snapshot changes nothing
    assert folded([*stored, *events[at:]], taken) == folded(events)


@patient
@given(histories())
def test_once_over_nothing_is_open(events: list[Event]):
    picture = folded(events)
    assert picture.ended == (events[-1].type in ("succeeded", "failed", "cancelled"))
    if picture.ended:
        assert (picture.phases, picture.stage, picture.waiting_for) == ({}, None, None)


@patient
@given(histories())
def test_a_stored_event_counts_once_and_live_ones_move_no_number(events: list[Event]):
    twice = [e for event in events for e in (event, event)]
    assert folded(twice) == folded(events)
    assert folded(events).seq == max(e.seq for e in events if isinstance(e, Stored))
    assert folded([Draining(reconnect_after_s=1)]) == Picture()


@patient
@given(histories(), st.data())
def test_a_snapshot_from_a_replica_that_lags_changes_nothing(events: list[Event], data: st.DataObject):
    whole = folded(events)
    old = folded(events[: data.draw(st.integers(0, len(events) - 1))])
    if old.seq < whole.seq:
        assert fold(whole, snapshot(old, START), START) == whole

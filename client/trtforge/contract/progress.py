"""Fold events, in order, into the picture of a build: the same picture for the service, the terminal and any client."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trtforge.contract.builds import TERMINAL, Stage, State, WaitingFor
from trtforge.contract.events import (
    Cancelled,
    Event,
    Failed,
    Joined,
    PhaseFinished,
    PhaseProgress,
    PhaseStarted,
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


@dataclass(frozen=True)
class OpenPhase:
    id: int
    parent: int | None
    name: str
    steps: int | None
    step: int | None
    since: datetime


@dataclass(frozen=True)
class Picture:
    """What is known after event `seq`. `phases` holds the live ones in the order they started, parents first."""

    seq: int = 0
    state: State = "queued"
    stage: Stage | None = None
    attempt: int = 0
    requests: int = 0
    waiting_for: WaitingFor | None = None
    phases: Mapping[int, OpenPhase] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


def fold(before: Picture, event: Event, now: datetime) -> Picture:
    """Return the picture after `event`; a stored event that the picture already contains changes nothing.

    `now` dates the phases of a snapshot, which carries only how long they have been running.
    """
    if isinstance(event, Stored):
        return before if event.seq <= before.seq else replace(_stored(before, event), seq=event.seq)
    if isinstance(event, Snapshot):  # one older than the picture comes from a replica that lags behind
        return before if event.seq < before.seq else _from_snapshot(event, now)
    if isinstance(event, PhaseProgress) and (phase := before.phases.get(event.phase.id)):
        return replace(before, phases={**before.phases, phase.id: replace(phase, step=event.phase.step)})
    return before


def _stored(before: Picture, event: Stored) -> Picture:
    match event:
        case Queued():
            return replace(before, state="queued", requests=1, waiting_for="worker")
        case Joined() | Withdrawn():
            return replace(before, requests=event.requests)
        case Waiting():
            return replace(before, waiting_for=event.waiting_for)
        case Started():
            return replace(before, state="running", attempt=event.attempt, waiting_for=None, stage=None, phases={})
        case StageEntered():
            return replace(before, stage=event.stage)
        case PhaseStarted(phase=p):
            opened = OpenPhase(p.id, p.parent, p.name, p.steps, None, event.at)
            return replace(before, phases={**before.phases, p.id: opened})
        case PhaseFinished():
            return replace(before, phases={i: p for i, p in before.phases.items() if i != event.phase.id})
        case Requeued():
            return replace(before, state="queued", stage=None, waiting_for="worker", phases={})
        case Succeeded():
            return replace(before, state="succeeded", stage=None, waiting_for=None, phases={})
        case Failed():
            return replace(before, state="failed", stage=None, waiting_for=None, phases={})
        case Cancelled():
            return replace(before, state="cancelled", stage=None, waiting_for=None, phases={})
        case _:
            return before


def _from_snapshot(event: Snapshot, now: datetime) -> Picture:
    build = event.build
    phases = {
        p.id: OpenPhase(p.id, p.parent, p.name, p.steps, p.step, now - timedelta(seconds=p.elapsed_s))
        for p in (build.progress.phases if build.progress else ())
    }
    return Picture(event.seq, build.state, build.stage, build.attempt, build.requests, build.waiting_for, phases)

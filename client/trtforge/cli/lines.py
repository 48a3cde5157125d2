"""Events as plain lines: for pipes, logs and CI, one stored event a line."""

from trtforge.cli.text import lines, plain, seconds, size, span
from trtforge.contract.builds import Cancel, Estimate, Failure
from trtforge.contract.events import (
    Cancelled,
    CancelRequested,
    Draining,
    Event,
    Failed,
    Heartbeat,
    Joined,
    Log,
    PhaseFinished,
    PhaseStarted,
    Queued,
    Requeued,
    StageEntered,
    Stalled,
    Started,
    Stored,
    Succeeded,
    Waiting,
    Withdrawn,
)
from trtforge.contract.progress import Picture

ENDED_BY = {
    "before_start": "before it started",
    "between_stages": "between two stages",
    "monitor": "through the builder's progress monitor",
    "killed": "by killing the builder",
    "worker_lost": "because its worker was gone",
}
WAITING_FOR = {
    "worker": "waiting for a worker",
    "device": "waiting for the device",
    "engine_lock": "waiting for another builder of this engine",
}


def line(event: Event, before: Picture) -> str | None:
    """Return what to print for `event`; `before` is the picture it changes. None: nothing worth a line."""
    if isinstance(event, Stored):
        return f"{event.at.astimezone():%H:%M:%S}  {_stored(event, before)}"
    if isinstance(event, Heartbeat):
        left = f", {remaining(event.estimate)}" if event.estimate else ""
        return f"          … silent {event.silent_s:.0f} s, {event.activity or 'not measured yet'}{left}"
    if isinstance(event, Stalled):
        return f"          … stalled: silent {event.silent_s:.0f} s, and the builder computes nothing"
    if isinstance(event, Draining):
        return "          … the service restarts; reconnecting"
    return None


def _stored(event: Stored, before: Picture) -> str:
    match event:
        case Queued():
            return "queued"
        case Joined():
            return f"joined: {event.requests} requests wait"
        case Withdrawn():
            return f"withdrawn: {event.requests} requests wait" + _because(event.reason)
        case Waiting():
            return WAITING_FOR[event.waiting_for]
        case Started():
            return f"started on {plain(event.worker)}, attempt {event.attempt}"
        case StageEntered():
            return f"stage {event.stage}"
        case PhaseStarted(phase=phase):
            steps = f" ({phase.steps} steps)" if phase.steps else ""
            return f"{_indent(phase.parent, before)}phase started: {plain(phase.name)}{steps}"
        case PhaseFinished():
            known = before.phases.get(event.phase.id)
            name, parent = (known.name, known.parent) if known else (str(event.phase.id), None)
            return f"{_indent(parent, before)}phase finished: {plain(name)} ({seconds(event.elapsed_s)})"
        case Log():
            return f"{event.level}: {plain(event.text)}"
        case CancelRequested():
            return f"cancel asked by {plain(event.by)}" + _because(event.reason)
        case Requeued():
            return "queued again" + _because(event.reason)
        case Succeeded():
            return f"succeeded: {event.engine.engine_key}, plan {size(event.engine.plan.size)}"
        case Failed():
            return f"failed: {plain(event.failure.code)}: {plain(event.failure.message)}"
        case Cancelled():
            return cancelled(event.cancel)
    return type(event).__name__


def _indent(parent: int | None, before: Picture) -> str:
    depth = 0
    while parent is not None and parent in before.phases and depth < len(before.phases):
        depth, parent = depth + 1, before.phases[parent].parent
    return "  " * depth


def remaining(estimate: Estimate, since_s: float = 0.0) -> str:
    """Say what an estimate of `since_s` seconds ago says now, and by what it goes."""
    low, high = (max(0.0, bound - since_s) for bound in estimate.remaining_s)
    return f"about {span(low, high)} left, from {plain(estimate.basis)}"


def cancelled(cancel: Cancel) -> str:
    """Say who stopped a build, why, how it ended and how long that took."""
    how = f", ended {ENDED_BY[cancel.ended_by]}" if cancel.ended_by else ""
    took = f" {seconds(cancel.seconds)} after it was asked" if cancel.seconds is not None else ""
    return f"cancelled by {plain(cancel.by)}{_because(cancel.reason)}{how}{took}"


def failed(failure: Failure) -> str:
    """Return a failure with what the builder itself said and what to do."""
    told = [f"{plain(failure.code)}: {plain(failure.message)}"]
    told += [f"  {plain(name)}: {plain(value)}" for name, value in failure.where.items()]
    if failure.native:
        told.append(f"  builder: {lines(failure.native)}")
    return "\n".join([*told, f"  → {plain(failure.remedy)}"])


def _because(reason: str | None) -> str:
    return f" ({plain(reason)})" if reason else ""

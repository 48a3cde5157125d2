"""Who may stop a build, and how asking is recorded: DELETE, a request that leaves, a timeout. The end comes later."""

from datetime import datetime

from app.builds.bus import QUEUE
from app.builds.ending import failure, stop_queued
from app.builds.fallback import fall_back
from app.builds.parts import Caller, Parts
from app.db import builds, requests
from app.db.builds import BuildRow, Stop
from app.db.requests import RequestRow
from app.db.session import Tx
from app.domain.states import LIVE
from app.errors import Refused
from trtforge.contract.events import CancelRequested, Withdrawn

SWEPT_AT_ONCE = 100  # overdue requests per look


def cancel(parts: Parts, build_id: str, caller: Caller, reason: str | None, force: bool) -> None:
    """Ask a build to stop; asked again, nothing changes.

    Raises `Refused`: not_found, already_ended, publishing, build_shared, or forbidden (force without admin).
    """
    if force and not caller.admin:
        raise Refused("forbidden", "Stopping a build that others wait for needs the scope admin.")
    with parts.database.write() as tx:
        build = _stoppable(tx, build_id)
        if build.stop:
            return
        others = _others(tx, build_id, caller)
        if others and not force:
            raise Refused("build_shared", f"{others} other requests wait for this build.", requests=others)
        _stop(tx, build, Stop("cancel", parts.now(), caller.name, reason))
    _wake(parts, build_id)


def _stoppable(tx: Tx, build_id: str) -> BuildRow:
    """Return the build, held: whoever joins or ends it comes before us or after us."""
    build = builds.hold(tx, build_id)
    if build is None:
        raise Refused("not_found", f"No build {build_id}.")
    if build.state not in LIVE:
        raise Refused("already_ended", f"The build {build.state} before.", state=build.state)
    if build.stage == "publish":
        raise Refused("publishing")
    return build


def _others(tx: Tx, build_id: str, caller: Caller) -> int:
    """Count the requests that are not the caller's. Without tokens nobody is known: every second one is another's."""
    waiting = requests.waiting_on(tx, build_id)
    if caller.anonymous:
        return max(0, len(waiting) - 1)
    return sum(r.caller != caller.name for r in waiting)


def _stop(tx: Tx, build: BuildRow, stop: Stop) -> None:
    """Stop a held build: at once while it is queued, by a flag once it runs."""
    if build.state == "queued":
        done = stop_queued(tx, build.id, stop)
    else:
        asked = [CancelRequested(at=stop.at, by=stop.by, reason=stop.reason)] if stop.kind == "cancel" else []
        done = builds.ask_stop(tx, build.id, stop, asked)
    assert done, build


def withdraw(parts: Parts, request_id: str, reason: str | None, caller: Caller | None = None) -> None:
    """Let one request leave its build; the last one that leaves stops it. Withdrawn before: nothing changes.

    Raises `Refused`: not_found, already_ended when the request was answered, forbidden when it is another token's and
    `caller` is no admin. Without a caller the service itself asks.
    """
    with parts.database.write() as tx:
        request, build = _held(tx, request_id)
        if request is None:
            raise Refused("not_found", f"No request {request_id}.")
        if caller and not caller.admin and caller.name != request.caller:
            raise Refused("forbidden", "The request came with another token; taking it back needs the scope admin.")
        if request.state == "withdrawn":
            return
        if request.state != "waiting" or build is None:
            raise Refused("already_ended", f"The request was {request.state} before.", state=request.state)
        stop = Stop(
            "cancel", parts.now(), caller.name if caller else request.caller, reason or "the last request was withdrawn"
        )
        _leave(tx, parts, request, build, stop, reason)
    _wake(parts, build.id)


def _held(tx: Tx, request_id: str) -> tuple[RequestRow | None, BuildRow | None]:
    """Return a request and its build as they stay until the transaction ends: only who holds the build answers it."""
    request = requests.find(tx, request_id)
    while request and request.build_id:
        build = builds.hold(tx, request.build_id)
        seen, request = request, requests.find(tx, request_id)
        if request and request.build_id == seen.build_id:  # else it fell back meanwhile
            return request, build
    return request, None


def _leave(tx: Tx, parts: Parts, request: RequestRow, build: BuildRow, stop: Stop, reason: str | None) -> None:
    """Take a request off its held build: for good when it was withdrawn, else to its next fallback; the last stops it."""
    staying = [r for r in requests.waiting_on(tx, build.id) if r.id != request.id]
    priority = max((r.options["priority"] for r in staying), default=build.priority)
    left = builds.leave(tx, build.id, Withdrawn(at=stop.at, request_id=request.id, reason=reason), priority)
    assert left, build
    if stop.kind == "cancel":
        requests.end(tx, request.id, "withdrawn", stop.at, reason=reason)
    else:
        fall_back(tx, parts, request, build, failure(stop.kind, stage=build.stage), stop.at)
    if not staying and not build.stop and build.stage != "publish":  # past that, it succeeds all the same
        _stop(tx, build, stop)


def time_out(parts: Parts) -> int:
    """Let every request leave whose time ran out; return how many did."""
    now = parts.now()
    with parts.database.read() as tx:
        overdue = requests.overdue(tx, now, SWEPT_AT_ONCE)
    for request in overdue:
        _time_out(parts, request, now)
    return len(overdue)


def _time_out(parts: Parts, overdue: RequestRow, now: datetime) -> None:
    with parts.database.write() as tx:
        request, build = _held(tx, overdue.id)
        if build is None or request != overdue or _settled(build):  # answered, or given a new deadline
            return
        kind = "run_timeout" if build.state == "running" else "queue_timeout"
        _leave(tx, parts, overdue, build, Stop(kind, now, "timeout", None), kind)
    _wake(parts, build.id)


def _settled(build: BuildRow) -> bool:
    """A build that was cancelled takes its requests with it; past the point of no return they are served."""
    return build.stop == "cancel" or build.stage == "publish"


def stall(parts: Parts, build_id: str, idle_s: float) -> None:
    """Let every request leave that does not want to wait for a builder that did nothing for `idle_s` seconds."""
    with parts.database.read() as tx:
        tired = [r for r in requests.waiting_on(tx, build_id) if (r.options["stall_timeout_s"] or idle_s) < idle_s]
    for seen in tired:
        with parts.database.write() as tx:
            request, build = _held(tx, seen.id)
            if build and request == seen and not _settled(build):
                _leave(tx, parts, seen, build, Stop("builder_stalled", parts.now(), "timeout", None), "builder_stalled")
    if tired:
        _wake(parts, build_id)


def _wake(parts: Parts, build_id: str) -> None:
    parts.bus.notify(build_id)
    parts.bus.notify(QUEUE)

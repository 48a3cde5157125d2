"""Decide a submit: cached, joined, created or known_failure, in one transaction that no other submit can come between."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.builds.bus import QUEUE
from app.builds.parts import Caller, Parts
from app.builds.views import build_view
from app.db import builds, engines, models, requests, targets
from app.db.builds import BuildRow
from app.db.requests import RequestRow
from app.db.session import Tx
from app.domain.effective import effective
from app.domain.ids import new_id
from app.domain.key import engine_key
from app.domain.targets import choose
from app.errors import Refused
from app.intake.checks import refuse
from app.intake.options import check_options
from app.intake.profiles import check_profiles
from trtforge.contract.builds import Disposition, RequestState, Submit, Submitted
from trtforge.contract.events import Joined
from trtforge.contract.spec import EffectiveSpec
from trtforge.contract.target import Target

IDEMPOTENCY_KEPT = timedelta(hours=24)
QUARANTINE_AFTER = 2  # crashes of one key with nothing built in between


@dataclass(frozen=True)
class Wanted:
    """A submit that passed every check: what would be built, and for whom."""

    submit: Submit
    caller: Caller
    engine_key: str
    target_id: str
    target: Target
    spec: EffectiveSpec


@dataclass(frozen=True)
class Decision:
    disposition: Disposition
    request: RequestState
    build: BuildRow | None


def submit(parts: Parts, asked: Submit, caller: Caller, idempotency_key: str | None, body: bytes) -> Submitted:
    """Answer a submit. Raises `Refused` with every problem at once.

    With an `idempotency_key` that came before the first answer's request is answered again, as it stands now.
    """
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    if idempotency_key and (again := _replayed(parts, caller, idempotency_key, digest)):
        return again
    wanted = _check(parts, asked, caller)
    at = parts.now()
    with parts.database.write() as tx:
        request_id = new_id("req")
        if idempotency_key:  # first, so that of two at once the other waits here and then finds ours
            since = at - IDEMPOTENCY_KEPT
            if not requests.remember(tx, caller.name, idempotency_key, digest, request_id, at, since):
                again = _replay(tx, parts, caller, idempotency_key, digest, since)
                assert again is not None
                return again
        decision = _decide(tx, parts, wanted, request_id, at)
        requests.add(tx, _request(wanted, request_id, decision, at))
        answer = _answer(tx, parts, request_id, decision.disposition, wanted.engine_key, decision.build)
    if decision.build:
        parts.bus.notify(decision.build.id)
        parts.bus.notify(QUEUE)
    return answer


def _check(parts: Parts, asked: Submit, caller: Caller) -> Wanted:
    with parts.database.read() as tx:
        model = models.find(tx, asked.model)
        known = targets.known(tx, parts.now() - timedelta(seconds=parts.settings.lease_s))
    if model is None:
        raise Refused("model_unknown", f"No model {asked.model} is here.")
    known_target, target = choose(asked.target, known)
    options = check_options(asked.spec, asked.options, known_target.capabilities)
    refuse([*options, *check_profiles(asked.spec.profiles, model.inputs)], model.inputs)
    spec = effective(asked.spec, known_target.capabilities)
    return Wanted(asked, caller, engine_key(asked.model, spec, target), known_target.id, target, spec)


def _decide(tx: Tx, parts: Parts, wanted: Wanted, request_id: str, at: datetime) -> Decision:
    key, options = wanted.engine_key, wanted.submit.options
    while True:
        if build := builds.live(tx, key):
            event = Joined(at=at, request_id=request_id)
            if builds.join(tx, build.id, event, options.priority):
                return Decision("joined", "waiting", builds.find(tx, build.id))
            continue  # it ended, or is being stopped, since we looked
        if _is_cached(tx, parts, key):  # after the look for a live build, which may have succeeded a moment ago
            return Decision("cached", "served", None)
        if failed := _known_failure(tx, wanted):
            return Decision("known_failure", "failed", failed)
        fresh = _fresh(wanted, at)
        if builds.create(tx, fresh, at):
            return Decision("created", "waiting", builds.find(tx, fresh.id))


def _is_cached(tx: Tx, parts: Parts, key: str) -> bool:
    """A row is a hit only if its bytes are there; otherwise the row goes, and the engine is built anew."""
    engine = engines.find(tx, key)
    if engine is None:
        return False
    if parts.store.has_plan(engine.plan.digest, engine.plan.size):
        return True
    engines.remove(tx, key)
    return False


def _known_failure(tx: Tx, wanted: Wanted) -> BuildRow | None:
    """Return the last failure of this key if it would repeat. Raises `Refused` when the key is quarantined."""
    outcomes = builds.last_outcomes(tx, wanted.engine_key, QUARANTINE_AFTER)
    if not outcomes or not (failure := outcomes[0].failure):
        return None
    retry = wanted.submit.options.retry
    crashed = [b.failure is not None and b.failure["code"] == "builder_crashed" for b in outcomes]
    if len(crashed) == QUARANTINE_AFTER and all(crashed) and not (retry and wanted.caller.admin):
        raise Refused(
            "quarantined",
            f"This build crashed the builder {QUARANTINE_AFTER} times, last in {outcomes[0].id}.",
            builds=[b.id for b in outcomes],
        )
    return None if retry or failure["retryable"] else outcomes[0]


def _fresh(wanted: Wanted, at: datetime) -> BuildRow:
    options = wanted.submit.options
    return BuildRow(
        id=new_id("bld"),
        engine_key=wanted.engine_key,
        model=wanted.submit.model,
        target_id=wanted.target_id,
        target=wanted.target.model_dump(mode="json"),
        spec_requested=wanted.submit.spec.model_dump(mode="json", exclude_unset=True),
        spec_effective=wanted.spec.model_dump(mode="json"),
        state="queued",
        stage=None,
        attempt=0,
        losses=0,
        last_seq=0,
        requests=1,
        priority=options.priority,
        labels=options.labels,
        waiting_for="worker",
        worker=None,
        lease_until=None,
        progress=None,
        stop=None,
        stop_at=None,
        stop_by=None,
        stop_reason=None,
        ended_by=None,
        stop_seconds=None,
        failure=None,
        plan_digest=None,
        plan_size=None,
        created_at=at,
        started_at=None,
        finished_at=None,
    )


def _request(wanted: Wanted, request_id: str, decision: Decision, at: datetime) -> RequestRow:
    options, build = wanted.submit.options, decision.build
    waiting = decision.request == "waiting"
    limit = options.run_timeout_s if build and build.state == "running" else options.queue_timeout_s
    return RequestRow(
        id=request_id,
        caller=wanted.caller.name,
        state=decision.request,
        disposition=decision.disposition,
        build_id=build.id if build else None,
        builds=[build.id] if build else [],
        options=options.model_dump(mode="json"),
        deadline=at + timedelta(seconds=limit) if waiting else None,
        served_key=wanted.engine_key if decision.request == "served" else None,
        failure=build.failure if build and decision.request == "failed" else None,
        reason=None,
        created_at=at,
        ended_at=None if waiting else at,
    )


def _answer(
    tx: Tx, parts: Parts, request_id: str, disposition: Disposition, key: str | None, build: BuildRow | None
) -> Submitted:
    return Submitted(
        disposition=disposition,
        request_id=request_id,
        build=build_view(tx, parts, build) if build else None,
        engine=engines.find(tx, key) if key else None,
    )


def _replayed(parts: Parts, caller: Caller, key: str, body_digest: str) -> Submitted | None:
    with parts.database.read() as tx:
        return _replay(tx, parts, caller, key, body_digest, parts.now() - IDEMPOTENCY_KEPT)


def _replay(tx: Tx, parts: Parts, caller: Caller, key: str, body_digest: str, since: datetime) -> Submitted | None:
    known = requests.replay(tx, caller.name, key, since)
    if known is None:
        return None
    if known.body_digest != body_digest:
        raise Refused("idempotency_mismatch")
    return answer_again(tx, parts, known.request_id)


def answer_again(tx: Tx, parts: Parts, request_id: str) -> Submitted:
    """Answer an earlier submit as things stand now."""
    request = requests.find(tx, request_id)
    assert request is not None, request_id
    build = builds.find(tx, request.build_id) if request.build_id else None
    key = build.engine_key if build else request.served_key
    disposition: Disposition = request.disposition  # type: ignore[assignment]
    return _answer(tx, parts, request_id, disposition, key, build)

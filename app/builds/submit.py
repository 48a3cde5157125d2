"""Answer a submit: check everything, decide in one transaction, remember the Idempotency-Key."""

import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from app.builds.admit import admit
from app.builds.bus import QUEUE
from app.builds.decide import Decision, Wanted, decide
from app.builds.fallback import fall_back, merged
from app.builds.nearest import with_nearest
from app.builds.parts import Caller, Parts
from app.builds.views import build_view
from app.db import builds, engines, models, requests, targets
from app.db.builds import BuildRow
from app.db.requests import RequestRow
from app.db.session import Tx
from app.domain.effective import effective
from app.domain.ids import new_id
from app.domain.targets import choose
from app.errors import Refused
from app.intake.checks import refuse
from app.intake.options import check_options
from app.intake.profiles import check_profiles
from trtforge.contract.builds import Failure, Submit, Submitted
from trtforge.contract.models import Model
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import BuildOptions
from trtforge.contract.target import Capabilities

IDEMPOTENCY_KEPT = timedelta(hours=24)


def submit(parts: Parts, asked: Submit, caller: Caller, idempotency_key: str | None, body: bytes) -> Submitted:
    """Answer a submit. Raises `Refused` with every problem at once.

    With an `idempotency_key` that came before the first answer's request is answered again, as it stands now.
    """
    return with_nearest(parts, _submit(parts, asked, caller, idempotency_key, body))


def _submit(parts: Parts, asked: Submit, caller: Caller, idempotency_key: str | None, body: bytes) -> Submitted:
    return answer(parts, asked, caller, idempotency_key, body, lambda: check(parts, asked, caller))


def answer(
    parts: Parts,
    asked: Submit,
    caller: Caller,
    idempotency_key: str | None,
    body: bytes,
    checked: Callable[[], Wanted],
) -> Submitted:
    """Decide about what `checked` returns and remember the request. Raises `Refused`."""
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    if idempotency_key and (again := _replayed(parts, caller, idempotency_key, digest)):
        return again
    wanted = checked()
    at = parts.now()

    def work(tx: Tx) -> Submitted:
        request_id = new_id("req")
        if idempotency_key:  # first, so that of two at once the other waits here and then finds ours
            since = at - IDEMPOTENCY_KEPT
            if not requests.remember(tx, caller.name, idempotency_key, digest, request_id, at, since):
                again = _replay(tx, parts, caller, idempotency_key, digest, since)
                assert again is not None
                return again
        done = decide(tx, parts, wanted, request_id, at)
        request = _request(wanted, asked, caller, request_id, done, at)
        requests.add(tx, request)
        build = done.build
        if done.disposition == "known_failure":
            assert build is not None
            fall_back(tx, parts, request, build, Failure.model_validate(build.failure), at)
            request, build = _as_it_stands(tx, request_id)
        admit(tx, parts, caller, request, build)
        return _told(tx, parts, request, build)

    answered = parts.database.together(work)
    if answered.build:
        parts.bus.notify(answered.build.id)
        parts.bus.notify(QUEUE)
    return answered


def check(parts: Parts, asked: Submit, caller: Caller) -> Wanted:
    """Return what would be built. Raises `Refused` with everything that is wrong."""
    if parts.settings.max_store_bytes is not None:
        parts.store.used_bytes(
            fresh=False
        )  # looked at before the transaction, which would hold everybody else meanwhile
    with parts.database.read() as tx:
        model = models.find(tx, asked.model)
        known = targets.known(tx, parts.now() - timedelta(seconds=parts.settings.lease_s))
    if model is None:
        raise Refused("model_unknown", f"No model {asked.model} is here.")
    target_known, target = choose(asked.target, known)
    table = target_known.capabilities
    refuse([*model.problems, *check_options(asked.spec, table), *_problems(asked, model, table)], model.inputs)
    return Wanted(
        model=asked.model,
        target_id=target_known.id,
        target=target,
        requested=asked.spec,
        spec=effective(asked.spec, table),
        priority=asked.options.priority,
        labels=asked.options.labels,
        retry=asked.options.retry,
        admin=caller.admin,
    )


def _problems(asked: Submit, model: Model, table: Capabilities) -> Iterator[Trouble]:
    """What is wrong with the spec and with each fallback, which is as binding: it may be built at night."""
    yield from check_profiles(asked.spec.profiles, model.inputs)
    for number, step in enumerate(asked.options.fallback):
        if step == "existing":
            continue
        spec = merged(asked.spec, step.spec)
        for problem in (*check_options(spec, table), *check_profiles(spec.profiles, model.inputs)):
            yield problem.model_copy(update={"where": {"fallback": number, **problem.where}})


def _request(
    wanted: Wanted, asked: Submit, caller: Caller, request_id: str, done: Decision, at: datetime
) -> RequestRow:
    options, build = asked.options, done.build
    limit = options.run_timeout_s if build and build.state == "running" else options.queue_timeout_s
    waiting = done.disposition != "cached"
    return RequestRow(
        id=request_id,
        caller=caller.name,
        state="waiting" if waiting else "served",
        disposition=done.disposition,
        build_id=build.id if build else None,
        builds=[build.id] if build else [],
        options={**options.model_dump(mode="json", exclude={"fallback"}), "fallback": _steps(options)},
        step=0,
        deadline=at + timedelta(seconds=limit) if waiting else None,
        served_key=None if waiting else wanted.engine_key,
        differs=None,
        failure=None,
        reason=None,
        created_at=at,
        ended_at=None if waiting else at,
    )


def _steps(options: BuildOptions) -> list[Any]:
    """The fallbacks as given: a field that is left out of a step keeps its first value, a null would not."""
    return [s if s == "existing" else s.model_dump(mode="json", exclude_unset=True) for s in options.fallback]


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
    """Answer a submit as things stand now: with the build its request waits on or ended with."""
    return _told(tx, parts, *_as_it_stands(tx, request_id))


def _as_it_stands(tx: Tx, request_id: str) -> tuple[RequestRow, BuildRow | None]:
    request = requests.find(tx, request_id)
    assert request is not None, request_id
    return request, builds.find(tx, request.build_id) if request.build_id else None


def _told(tx: Tx, parts: Parts, request: RequestRow, build: BuildRow | None) -> Submitted:
    key = request.served_key or (build.engine_key if build else None)
    return Submitted(
        disposition=request.disposition,
        request_id=request.id,
        build=build_view(tx, parts, build) if build else None,
        engine=engines.find(tx, key) if key else None,
    )

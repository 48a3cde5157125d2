"""What a request takes when its build fails or runs out of time: a cheaper spec, or the best engine that exists."""

from datetime import datetime, timedelta

from app.builds.decide import Decision, Wanted, decide
from app.builds.parts import Parts
from app.db import builds, engines, requests, targets
from app.db.builds import BuildRow
from app.db.requests import RequestRow
from app.db.session import Tx
from app.domain.differences import differences
from app.domain.effective import effective
from app.errors import Refused
from trtforge.contract.builds import Failure
from trtforge.contract.engines import Manifest
from trtforge.contract.spec import BuildSpec, EffectiveSpec
from trtforge.contract.target import Target

EXISTING = 50  # engines of a model looked through for the best one


def merged(first: BuildSpec, change: BuildSpec) -> BuildSpec:
    """Return the spec of a fallback: what was asked for first, with what the fallback says instead."""
    return first.model_copy(update={name: getattr(change, name) for name in change.model_fields_set})


def fall_back(tx: Tx, parts: Parts, request: RequestRow, failed: BuildRow, why: Failure, at: datetime) -> None:
    """Give a request that waits on `failed`, which is held, the next thing it said it would take, or end it as failed."""
    for step, wish in enumerate(request.options["fallback"][request.step :], request.step + 1):
        taken = (
            _existing(tx, parts, request, at)
            if wish == "existing"
            else _build(tx, parts, request, failed, BuildSpec.model_validate(wish["spec"]), step, at)
        )
        if taken:
            return
    requests.end(tx, request.id, "failed", at, failure=why.model_dump(mode="json"))


def _build(
    tx: Tx, parts: Parts, request: RequestRow, failed: BuildRow, change: BuildSpec, step: int, at: datetime
) -> bool:
    wanted = _wanted(tx, request, failed, change)
    if wanted.engine_key in builds.keys_of(tx, request.builds):  # it would fail or run out of time again
        return False
    try:
        decision = decide(tx, parts, wanted, request.id, at)
    except Refused:  # quarantined, or its model is gone
        return False
    match decision:
        case Decision("cached"):
            asked = EffectiveSpec.model_validate(_first(tx, request).spec_effective)
            _serve(tx, request, wanted.engine_key, wanted.spec, asked, at)
        case Decision("created" | "joined", BuildRow() as build):
            limit = "run_timeout_s" if build.state == "running" else "queue_timeout_s"
            requests.move(tx, request, build.id, step, at + timedelta(seconds=request.options[limit]))
        case _:
            return False  # it would fail too
    return True


def _wanted(tx: Tx, request: RequestRow, failed: BuildRow, change: BuildSpec) -> Wanted:
    requested = merged(BuildSpec.model_validate(_first(tx, request).spec_requested), change)
    return Wanted(
        model=failed.model,
        target_id=failed.target_id,
        target=Target.model_validate(failed.target),
        requested=requested,
        spec=effective(requested, targets.capabilities(tx, failed.target_id)),
        priority=request.options["priority"],
        labels=request.options["labels"],
        retry=False,
        admin=False,
        follows=failed.id,
    )


def _existing(tx: Tx, parts: Parts, request: RequestRow, at: datetime) -> bool:
    """Serve the stored engine of the same model and target that differs least, the newest of those."""
    first = _first(tx, request)
    asked = EffectiveSpec.model_validate(first.spec_effective)
    target = Target.model_validate(first.target)
    stored = [Manifest.model_validate_json(m) for m in engines.of_model(tx, first.model, EXISTING)]
    whole = [m for m in stored if m.target == target and parts.store.has_plan(m.plan.digest, m.plan.size)]
    if not whole:
        return False
    best = min(whole, key=lambda m: len(differences(m.spec.effective, asked)))
    _serve(tx, request, best.engine_key, best.spec.effective, asked, at)
    return True


def _serve(tx: Tx, request: RequestRow, key: str, have: EffectiveSpec, asked: EffectiveSpec, at: datetime) -> None:
    differs = [d.model_dump(mode="json") for d in differences(have, asked)]
    requests.end(tx, request.id, "served", at, served_key=key, differs=differs)


def note_fallbacks(tx: Tx, build_id: str, manifest: Manifest) -> None:
    """Tell the requests that came to this build by a fallback how its engine differs from what they asked for first."""
    for request in requests.that_fell_back_to(tx, build_id):
        asked = EffectiveSpec.model_validate(_first(tx, request).spec_effective)
        found = differences(manifest.spec.effective, asked)
        requests.set_differs(tx, request.id, [d.model_dump(mode="json") for d in found])


def _first(tx: Tx, request: RequestRow) -> BuildRow:
    """The build that was asked for before any fallback."""
    first = builds.find(tx, request.builds[0])
    assert first is not None  # builds with waiting requests are kept
    return first

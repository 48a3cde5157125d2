"""Build an engine again, to see whether the bytes are the same: reproducible means that anyone can check.

A rebuild goes the way of every build: queued, claimed, fenced, cancelled, recovered. Its row has a key of its own, made from
the engine's, so that rebuilds of one engine share one build, nobody who wants the engine joins it, and neither the lock nor
the manifest of the engine is touched. In stage publish its plan is hashed and compared, and nothing is kept.
"""

from datetime import timedelta
from pathlib import Path

from app.builds.decide import Wanted
from app.builds.ending import Rebuilt
from app.builds.parts import Caller, Parts
from app.builds.publish import make_manifest
from app.builds.submit import answer
from app.db import engines, models, targets
from app.db.builds import BuildRow
from app.domain.comparison import compare
from app.domain.targets import choose
from app.errors import Refused
from app.worker.messages import Built
from trtforge.contract.builds import Difference, Submit, Submitted
from trtforge.contract.engines import Manifest, PlanRef, Timings
from trtforge.contract.target import TargetSelector

PIECE = 1 << 20  # bytes compared at once
UNTOLD = "performance"  # the group of what differs each time: seconds


def rebuild(parts: Parts, key: str, caller: Caller, idempotency_key: str | None) -> Submitted:
    """Ask for an engine again, only to compare. Raises `Refused`: not_found, model_unknown, target_unknown, …"""
    asked = Submit(model=key)  # only its options count, and they are the defaults
    body = f"rebuild {key}".encode()
    return answer(parts, asked, caller, idempotency_key, body, lambda: _wanted(parts, key, caller))


def _wanted(parts: Parts, key: str, caller: Caller) -> Wanted:
    with parts.database.read() as tx:
        stored = engines.manifest(tx, key)
        manifest = Manifest.model_validate_json(stored) if stored else None
        model = models.find(tx, manifest.model.digest) if manifest else None
        known = targets.known(tx, parts.now() - timedelta(seconds=parts.settings.lease_s))
    if manifest is None:
        raise Refused("not_found", f"No engine {key}.")
    if model is None:
        raise Refused("model_unknown", f"The model {manifest.model.digest} of this engine is not here.")
    one, target = choose(TargetSelector(**manifest.target.model_dump()), known)
    return Wanted(
        model=model.digest,
        target_id=one.id,
        target=target,
        requested=manifest.spec.requested,
        spec=manifest.spec.effective,
        priority=0,
        labels={},
        retry=True,
        admin=caller.admin,
        rebuild={"engine_key": key, "plan": manifest.plan.model_dump(mode="json")},
    )


def compare_again(parts: Parts, build: BuildRow, built: Built, staged: Path) -> Rebuilt:
    """Return what a rebuild made and in what it is not what is stored. Raises `PlanRejected`, `StoreUnusable`."""
    assert build.rebuild is not None
    before = PlanRef.model_validate(build.rebuild["plan"])
    with parts.store.take_plan(staged) as plan:
        now = PlanRef(digest=plan.digest, size=plan.size)
    if now == before:
        return Rebuilt(now, ())
    differs = [Difference(field="plan.digest", have=before.digest, asked=now.digest)]
    if now.size != before.size:
        differs.append(Difference(field="plan.size", have=before.size, asked=now.size))
    offset = first_difference(parts.store.open_plan(before.digest), staged)
    return Rebuilt(now, (*differs, *_making(parts, build, built, now)), offset)


def _making(parts: Parts, build: BuildRow, built: Built, now: PlanRef) -> list[Difference]:
    """Return what else is not as it was when the stored engine was made: tools, precision, …"""
    assert build.rebuild is not None
    with parts.database.read() as tx:
        stored, model = engines.manifest(tx, build.rebuild["engine_key"]), models.find(tx, build.model)
    if stored is None or model is None:
        return []
    again = make_manifest(build, model, built, now, Timings(stages={}, phases=()), [], parts.now())
    groups = compare(Manifest.model_validate_json(stored), again).groups
    changes = [change for group, several in groups.items() if group != UNTOLD for change in several]
    return [Difference(field=change.field, have=change.a, asked=change.b) for change in changes]


def first_difference(one: Path, other: Path) -> int | None:
    """Return the offset of the first byte that differs, an end counting as one; None: none does, or one is gone."""
    offset = 0
    try:
        with one.open("rb") as a, other.open("rb") as b:
            while True:
                mine, theirs = a.read(PIECE), b.read(PIECE)
                if mine != theirs:
                    pairs = enumerate(zip(mine, theirs, strict=False))
                    return offset + next((i for i, (x, y) in pairs if x != y), min(len(mine), len(theirs)))
                if not mine:
                    return None
                offset += len(mine)
    except OSError:
        return None

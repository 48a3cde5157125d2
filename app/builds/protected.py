"""Engines that nothing removes by itself, although no pin holds them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.builds.parts import Parts
from app.builds.resolve import judge
from app.db import engines, retention, targets
from app.db.retention import EngineUse
from trtforge.contract.names import Want
from trtforge.contract.resolve import Resolve
from trtforge.contract.target import KnownTarget, TargetSelector

ALL = 1_000_000  # engines of one model: more than a store holds


def protected(parts: Parts, found: Sequence[EngineUse], since: datetime) -> set[str]:
    """Return the keys of those that were made or fetched since then, are being sent, built anew, or meant by a name."""
    sending = parts.sending.now()
    with parts.database.read() as tx:
        kept = retention.live_keys(tx)
        wants = retention.wants(tx)
        known = targets.known(tx, parts.now() - timedelta(seconds=parts.settings.lease_s))
    kept |= {one.engine_key for one in found if one.plan_digest in sending or one.used_at >= since}
    kept |= {one.engine_key for one in found if one.created_at >= since}
    for want in wants:
        kept |= _meant(parts, want, known)
    return kept


def _meant(parts: Parts, want: Want, known: Sequence[KnownTarget]) -> set[str]:
    """Return every engine that a name may mean for some machine: which machines ask is not known."""
    with parts.database.read() as tx:
        stored = engines.described(tx, want.model, ALL)
    asked = Resolve(model=want.model, spec=want.spec, target=want.target, policy="portable")
    unsaid = TargetSelector.model_fields.keys() - want.target.model_dump(exclude_none=True).keys()
    return {
        one.engine.engine_key
        for one in judge(stored, asked, known)
        if all(o.needs or o.field in unsaid for o in one.candidate.objections)
    }

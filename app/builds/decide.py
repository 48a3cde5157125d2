"""Decide what becomes of a wish: cached, joined, created or known_failure, with nothing coming in between."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.builds.fetches import NOTED_EVERY_S
from app.builds.parts import Parts
from app.builds.room import lacks_for_build
from app.db import builds, engines, models
from app.db.builds import BuildRow
from app.db.session import Tx
from app.domain.ids import new_id
from app.domain.key import engine_key, rebuild_key
from app.errors import Refused
from trtforge.contract.builds import Disposition
from trtforge.contract.events import Joined
from trtforge.contract.spec import BuildSpec, EffectiveSpec
from trtforge.contract.target import Target

QUARANTINE_AFTER = 2  # crashes of one key with nothing built in between


@dataclass(frozen=True)
class Wanted:
    """A wish that passed every check: what would be built, and how."""

    model: str
    target_id: str
    target: Target
    requested: BuildSpec
    spec: EffectiveSpec
    priority: int
    labels: dict[str, str]
    retry: bool
    admin: bool
    follows: str | None = None
    rebuild: dict[str, Any] | None = None  # of what is built again only to compare

    @property
    def engine_key(self) -> str:
        """The key of the row: a rebuild has one of its own, so that it serves nobody who wants the engine."""
        key = engine_key(self.model, self.spec, self.target)
        return rebuild_key(key) if self.rebuild else key


@dataclass(frozen=True)
class Decision:
    disposition: Disposition
    build: BuildRow | None


def decide(tx: Tx, parts: Parts, wanted: Wanted, request_id: str, at: datetime) -> Decision:
    """Find or make what serves `wanted`, and count the request in. Raises `Refused`: quarantined, store_full, model_unknown."""
    key = wanted.engine_key
    while True:
        if build := builds.live(tx, key):
            event = Joined(at=at, request_id=request_id)
            if builds.join(tx, build.id, event, wanted.priority):
                return Decision("joined", builds.find(tx, build.id))
            continue  # it ended, or is being stopped, since we looked
        if _is_cached(tx, parts, key, at):  # after the look for a live build, which may have succeeded a moment ago
            return Decision("cached", None)
        if failed := _known_failure(tx, wanted, key):
            return Decision("known_failure", failed)
        _reserve(tx, parts, wanted)
        fresh = _fresh(wanted, key, at)
        if builds.create(tx, fresh, at):
            return Decision("created", builds.find(tx, fresh.id))


def _reserve(tx: Tx, parts: Parts, wanted: Wanted) -> None:
    """Hold the model, and see that there is room. Raises `Refused`: model_unknown, store_full.

    Nobody could be told that a fallback is refused for want of room: that is looked at when it starts.
    """
    size = models.hold(tx, wanted.model)
    if size is None:  # removed since it was looked at
        raise Refused("model_unknown", f"No model {wanted.model} is here.")
    if wanted.follows is None and (why := lacks_for_build(tx, parts, size)):
        raise Refused("store_full", why)


def _is_cached(tx: Tx, parts: Parts, key: str, at: datetime) -> bool:
    """A row is a hit only if its bytes are there; otherwise the row goes, and the engine is built anew.

    A hit counts as a fetch, which is about to come: nothing may collect the engine in between.
    """
    engine = engines.find(tx, key)
    if engine is None:
        return False
    if parts.store.has_plan(engine.plan.digest, engine.plan.size):
        if parts.sending.is_due(engine.plan.digest, NOTED_EVERY_S):
            engines.fetched(tx, engine.plan.digest, at)
        return True
    engines.remove(tx, key)
    return False


def _known_failure(tx: Tx, wanted: Wanted, key: str) -> BuildRow | None:
    """Return the last failure of this key if it would repeat. Raises `Refused` when the key is quarantined."""
    outcomes = builds.last_outcomes(tx, key, QUARANTINE_AFTER)
    if not outcomes or not (failure := outcomes[0].failure):
        return None
    crashed = [b.failure is not None and b.failure["code"] == "builder_crashed" for b in outcomes]
    if len(crashed) == QUARANTINE_AFTER and all(crashed) and not (wanted.retry and wanted.admin):
        raise Refused(
            "quarantined",
            f"This build crashed the builder {QUARANTINE_AFTER} times, last in {outcomes[0].id}.",
            builds=[b.id for b in outcomes],
        )
    return None if wanted.retry or failure["retryable"] else outcomes[0]


def _fresh(wanted: Wanted, key: str, at: datetime) -> BuildRow:
    return BuildRow(
        id=new_id("bld"),
        engine_key=key,
        model=wanted.model,
        target_id=wanted.target_id,
        target=wanted.target.model_dump(mode="json"),
        spec_requested=wanted.requested.model_dump(mode="json", exclude_unset=True),
        spec_effective=wanted.spec.model_dump(mode="json"),
        state="queued",
        stage=None,
        attempt=0,
        losses=0,
        last_seq=0,
        requests=1,
        priority=wanted.priority,
        labels=wanted.labels,
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
        rebuild=wanted.rebuild,
        follows=wanted.follows,
        created_at=at,
        started_at=None,
        finished_at=None,
    )

"""Engines: the index over the manifests of the store."""

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Row, Text, bindparam, cast, delete, exists, func, select, tuple_, update

from app.db.session import Tx, insert_or
from app.db.tables import engines
from trtforge.contract.engines import EngineSummary, Manifest, PlanRef


def add(tx: Tx, manifest: Manifest) -> None:
    """Index an engine; what is there already stays."""
    tx.execute(
        insert_or(tx, engines)
        .values(
            engine_key=manifest.engine_key,
            model=manifest.model.digest,
            builder=manifest.target.builder,
            gpu=manifest.target.gpu,
            target=manifest.target.model_dump(mode="json"),
            spec=manifest.spec.effective.model_dump(mode="json"),
            plan_digest=manifest.plan.digest,
            plan_size=manifest.plan.size,
            manifest=manifest.model_dump_json(),
            created_at=manifest.created_at,
            pinned=False,
        )
        .on_conflict_do_nothing()
    )


def total_bytes(tx: Tx) -> int:
    """Return what all plans take; engines with the same plan share it."""
    plans = select(engines.c.plan_digest, engines.c.plan_size).distinct().subquery()
    return int(tx.execute(select(func.coalesce(func.sum(plans.c.plan_size), 0))).scalar_one())


def remove(tx: Tx, engine_key: str) -> None:
    tx.execute(delete(engines).where(engines.c.engine_key == engine_key))


def pin(tx: Tx, engine_key: str, pinned: bool) -> bool:
    """Keep an engine from being removed, or no longer; False when there is no such engine."""
    changed = tx.execute(update(engines).where(engines.c.engine_key == engine_key).values(pinned=pinned))
    return changed.rowcount == 1


def remove_unpinned(tx: Tx, engine_key: str) -> bool:
    """Remove an engine from the index, in one statement with the look at its pin; False: pinned, or not there."""
    gone = tx.execute(delete(engines).where(engines.c.engine_key == engine_key, ~engines.c.pinned))
    return gone.rowcount == 1


_summary = (
    engines.c.engine_key,
    engines.c.model,
    engines.c.target,
    engines.c.plan_digest,
    engines.c.plan_size,
    engines.c.created_at,
    engines.c.last_fetched_at,
    engines.c.pinned,
)


def _read(row: Row[*tuple[Any, ...]]) -> EngineSummary:
    return EngineSummary(
        engine_key=row.engine_key,
        model=row.model,
        target=row.target,
        plan=PlanRef(digest=row.plan_digest, size=row.plan_size),
        created_at=row.created_at,
        last_fetched_at=row.last_fetched_at,
        pinned=row.pinned,
    )


_FIND = select(*_summary).where(engines.c.engine_key == bindparam("key"))  # made once, as every submit asks it


def find(tx: Tx, engine_key: str) -> EngineSummary | None:
    row = tx.execute(_FIND, {"key": engine_key}).one_or_none()
    return _read(row) if row else None


def manifest(tx: Tx, engine_key: str) -> str | None:
    """Return the manifest as JSON."""
    return tx.execute(select(engines.c.manifest).where(engines.c.engine_key == engine_key)).scalar_one_or_none()


def plan(tx: Tx, digest: str) -> PlanRef | None:
    row = tx.execute(select(engines.c.plan_size).where(engines.c.plan_digest == digest).limit(1)).one_or_none()
    return PlanRef(digest=digest, size=row.plan_size) if row else None


def fetched(tx: Tx, plan_digest: str, at: datetime) -> None:
    """Note a download, for retention."""
    tx.execute(update(engines).where(engines.c.plan_digest == plan_digest).values(last_fetched_at=at))


def of_model(tx: Tx, model: str, limit: int) -> list[str]:
    """Return the newest manifests (JSON) of a model."""
    query = select(engines.c.manifest).where(engines.c.model == model)
    return [r.manifest for r in tx.execute(query.order_by(engines.c.created_at.desc()).limit(limit))]


@dataclass(frozen=True)
class Described:
    """An engine with what its key is made of, as JSON."""

    engine_key: str
    target: dict[str, Any]
    spec: dict[str, Any]
    plan: PlanRef


_DESCRIBED = (
    select(
        engines.c.engine_key,
        cast(engines.c.target, Text),
        cast(engines.c.spec, Text),
        engines.c.plan_digest,
        engines.c.plan_size,
    )
    .where(engines.c.model == bindparam("model"))
    .order_by(engines.c.created_at.desc(), engines.c.engine_key.desc())
    .limit(bindparam("most"))
)


def described(tx: Tx, model: str, limit: int) -> list[Described]:
    """Return the newest engines of a model, newest first; equal targets are one object, and so are equal specs.

    A model has many engines and few different targets and specs: each is read from JSON once.
    """
    rows = tx.execute(_DESCRIBED, {"model": model, "most": limit})
    read = cache(json.loads)
    return [Described(k, read(t), read(s), PlanRef(digest=digest, size=size)) for k, t, s, digest, size in rows]


def is_there(tx: Tx, engine_key: str) -> bool:
    return bool(tx.execute(select(exists().where(engines.c.engine_key == engine_key))).scalar())


@dataclass(frozen=True)
class EngineFilter:
    model: str | None = None
    builder: str | None = None
    gpu: str | None = None


def page(tx: Tx, wanted: EngineFilter, limit: int, before: tuple[datetime, str] | None) -> list[EngineSummary]:
    """Return engines newest first, those before the cursor (created_at, engine_key)."""
    query = select(*_summary).order_by(engines.c.created_at.desc(), engines.c.engine_key.desc()).limit(limit)
    for name in ("model", "builder", "gpu"):
        if value := getattr(wanted, name):
            query = query.where(engines.c[name] == value)
    if before:
        query = query.where(tuple_(engines.c.created_at, engines.c.engine_key) < before)
    return [_read(r) for r in tx.execute(query)]

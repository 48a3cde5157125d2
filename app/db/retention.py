"""What may go: engines, models, and what is left of ended builds and requests. Looks are bounded by `limit`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Row, String, cast, delete, exists, func, or_, select, update

from app.db.session import Tx
from app.db.tables import build_events, builds, engines, idempotency_keys, models, names, requests
from app.domain.key import rebuild_key
from app.domain.states import LIVE
from trtforge.contract.engines import PlanRef
from trtforge.contract.models import ModelFile
from trtforge.contract.names import Want

AT_ONCE = 500  # values in one question: databases bound them

_live_builds = builds.c.state.in_(sorted(LIVE))


# ---- engines


@dataclass(frozen=True)
class EngineUse:
    """An engine that no pin holds. `target` is JSON, only to be compared."""

    engine_key: str
    model: str
    target: str
    plan_digest: str
    plan_size: int
    created_at: datetime
    last_fetched_at: datetime | None

    @property
    def used_at(self) -> datetime:
        return self.last_fetched_at or self.created_at


_use = (
    engines.c.engine_key,
    engines.c.model,
    cast(engines.c.target, String),
    engines.c.plan_digest,
    engines.c.plan_size,
    engines.c.created_at,
    engines.c.last_fetched_at,
)
_used_at = func.coalesce(engines.c.last_fetched_at, engines.c.created_at)


def unpinned(tx: Tx) -> list[EngineUse]:
    """Return every engine that no pin holds, the one used least recently first."""
    query = select(*_use).where(~engines.c.pinned).order_by(_used_at, engines.c.engine_key)
    return [EngineUse(*row) for row in tx.execute(query)]


def wants(tx: Tx) -> list[Want]:
    """Return what every name stands for now."""
    stored = tx.execute(select(names.c.want).where(names.c.want.is_not(None))).scalars()
    return [Want.model_validate(one) for one in stored]


def live_keys(tx: Tx) -> set[str]:
    """Return the keys of engines that are being built, built again to compare, or refitted."""
    rows = tx.execute(select(builds.c.engine_key, builds.c.rebuild, builds.c.spec_effective).where(_live_builds)).all()
    keys = {row.rebuild["engine_key"] if row.rebuild else row.engine_key for row in rows}
    return keys | {base for row in rows if (base := row.spec_effective.get("refitted_from"))}


def expected_bytes(tx: Tx, apart_from: str | None = None) -> list[int]:
    """Return the sizes of the models that are being built now, one for each build."""
    query = select(models.c.size).join(builds, builds.c.model == models.c.digest).where(builds.c.state == "running")
    return list(tx.execute(query if apart_from is None else query.where(builds.c.id != apart_from)).scalars())


def pinned_plans(tx: Tx) -> set[str]:
    return set(tx.execute(select(engines.c.plan_digest).where(engines.c.pinned)).scalars())


def remove_unused(tx: Tx, engine: EngineUse) -> bool:
    """Remove an engine from the index if nothing changed since it was seen: no pin, no fetch, no live build of its key."""
    gone = tx.execute(
        delete(engines).where(
            engines.c.engine_key == engine.engine_key,
            engines.c.created_at == engine.created_at,
            ~engines.c.pinned,
            engines.c.last_fetched_at.is_not_distinct_from(engine.last_fetched_at),
            ~exists().where(builds.c.engine_key.in_((engine.engine_key, rebuild_key(engine.engine_key))), _live_builds),
        )
    )
    return gone.rowcount == 1


def indexed_keys(tx: Tx, keys: Iterable[str]) -> set[str]:
    """Return those of these engine keys that have a row."""
    return set(_among(tx, engines.c.engine_key, keys))


def indexed_plans(tx: Tx, digests: Iterable[str]) -> set[str]:
    return set(_among(tx, engines.c.plan_digest, digests))


def _among(tx: Tx, column: Any, values: Iterable[str]) -> Iterator[str]:
    rest = iter(values)
    while some := list(islice(rest, AT_ONCE)):
        yield from tx.execute(select(column).where(column.in_(some)).distinct()).scalars()


@dataclass(frozen=True)
class EngineRow:
    engine_key: str
    plan: PlanRef


def all_engines(tx: Tx) -> list[EngineRow]:
    rows = tx.execute(select(engines.c.engine_key, engines.c.plan_digest, engines.c.plan_size))
    return [EngineRow(r.engine_key, PlanRef(digest=r.plan_digest, size=r.plan_size)) for r in rows]


def all_models(tx: Tx) -> list[str]:
    return list(tx.execute(select(models.c.digest)).scalars())


# ---- models


@dataclass(frozen=True)
class ModelUse:
    digest: str
    size: int
    files: tuple[ModelFile, ...]
    used_at: datetime


def known_models(tx: Tx, digests: Iterable[str]) -> set[str]:
    return set(_among(tx, models.c.digest, digests))


def files_in_use(tx: Tx) -> list[str]:
    """Return the digest of each file of each model, as often as a model has it."""
    return [file["digest"] for files in tx.execute(select(models.c.files)).scalars() for file in files]


def unused_models(tx: Tx, before: datetime, limit: int) -> list[ModelUse]:
    """Return models that no engine and no live build has, and no build was asked of since `before`; oldest first."""
    last = select(func.max(builds.c.created_at)).where(builds.c.model == models.c.digest).scalar_subquery()
    query = (
        select(models.c.digest, models.c.size, models.c.files, models.c.created_at, last.label("last"))
        .where(models.c.created_at < before, or_(last.is_(None), last < before), *_unreferenced())
        .order_by(models.c.created_at)
        .limit(limit)
    )
    found = [_model(row) for row in tx.execute(query)]
    return sorted(found, key=lambda one: one.used_at)


def _unreferenced() -> tuple[Any, ...]:
    return (
        ~exists().where(engines.c.model == models.c.digest),
        models.c.digest.not_in(select(builds.c.model).where(_live_builds)),
    )


def _model(row: Row[*tuple[Any, ...]]) -> ModelUse:
    files = tuple(ModelFile.model_validate(file) for file in row.files)
    return ModelUse(row.digest, row.size, files, max(row.created_at, row.last or row.created_at))


def remove_model(tx: Tx, digest: str) -> bool:
    """Remove a model from the index unless something refers to it by now; who submits holds its row meanwhile."""
    tx.execute(select(models.c.digest).where(models.c.digest == digest).with_for_update())
    if any(want.model == digest for want in wants(tx)):
        return False
    return tx.execute(delete(models).where(models.c.digest == digest, *_unreferenced())).rowcount == 1


# ---- what is left of builds and requests


def old_logs(tx: Tx, before: datetime, limit: int) -> list[tuple[str, int]]:
    """Return builds that ended before then and still have all their events, with the bytes of those that may go."""
    old = (
        select(builds.c.id, builds.c.last_seq)
        .where(builds.c.trimmed_at.is_(None), builds.c.finished_at < before)
        .order_by(builds.c.finished_at)
        .limit(limit)
        .subquery()
    )
    size = func.coalesce(func.sum(func.length(build_events.c.body)), 0)
    joined = old.outerjoin(build_events, (build_events.c.build_id == old.c.id) & (build_events.c.seq < old.c.last_seq))
    return [(row[0], int(row[1])) for row in tx.execute(select(old.c.id, size).select_from(joined).group_by(old.c.id))]


def trim(tx: Tx, build_ids: Sequence[str], at: datetime) -> None:
    """Remove all events of these ended builds but the last."""
    last = select(builds.c.last_seq).where(builds.c.id == build_events.c.build_id).scalar_subquery()
    tx.execute(delete(build_events).where(build_events.c.build_id.in_(build_ids), build_events.c.seq < last))
    tx.execute(update(builds).where(builds.c.id.in_(build_ids)).values(trimmed_at=at))


def old_requests(tx: Tx, before: datetime, limit: int) -> list[str]:
    query = select(requests.c.id).where(requests.c.ended_at < before).order_by(requests.c.ended_at)
    return list(tx.execute(query.limit(limit)).scalars())


def remove_requests(tx: Tx, ids: Sequence[str]) -> None:
    tx.execute(delete(requests).where(requests.c.id.in_(ids)))


def old_builds(tx: Tx, before: datetime, limit: int) -> list[str]:
    """Return builds that ended before then, and no request that ended since waited on."""
    younger = or_(requests.c.ended_at.is_(None), requests.c.ended_at >= before)
    went_on = select(requests.c.builds).where(requests.c.state == "waiting", requests.c.step > 0)
    fallen_back = {build for builds_ in tx.execute(went_on).scalars() for build in builds_}
    query = select(builds.c.id).where(
        builds.c.finished_at < before, ~exists().where(requests.c.build_id == builds.c.id, younger)
    )
    found = tx.execute(query.order_by(builds.c.finished_at).limit(limit)).scalars()
    return [build for build in found if build not in fallen_back]


def remove_builds(tx: Tx, ids: Sequence[str]) -> None:
    """Remove builds that have ended, with their last events."""
    tx.execute(delete(builds).where(builds.c.id.in_(ids), builds.c.finished_at.is_not(None)))


def old_keys(tx: Tx, before: datetime) -> int:
    """Return how many Idempotency-Keys are from before then."""
    return tx.execute(
        select(func.count()).select_from(idempotency_keys).where(idempotency_keys.c.created_at < before)
    ).scalar_one()


def forget_keys(tx: Tx, before: datetime) -> None:
    tx.execute(delete(idempotency_keys).where(idempotency_keys.c.created_at < before))

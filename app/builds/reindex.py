"""Make the index from the store, and what is missing beside it from the index: the store alone is a whole backup.

What only a database knows does not come back: names, pins, tokens, and the history of builds and requests.
"""

from dataclasses import dataclass

import structlog

from app.builds.layout import is_here
from app.builds.parts import Parts
from app.db import engines, models, retention
from app.worker.locks import try_lock
from trtforge.contract.engines import Manifest
from trtforge.contract.models import Inspection

log = structlog.get_logger()


@dataclass(frozen=True)
class Reindexed:
    """What was added: rows of engines and models, and the files beside plans and models."""

    engines: int
    models: int
    manifests: int
    inspections: int


def reindex(parts: Parts) -> Reindexed:
    """Add every row and every file that can be made from the other. May be repeated; disturbs nobody."""
    found_models, found_engines = index_missing(parts)
    return Reindexed(found_engines, found_models, _manifests(parts), _inspections(parts))


def index_missing(parts: Parts) -> tuple[int, int]:
    """Add a row for each model and engine that is whole in the store and has none; return how many."""
    store = parts.store
    with parts.database.read() as tx:
        on_disk = set(store.inspection_digests())
        unknown_models = on_disk - retention.known_models(tx, on_disk)
        on_disk = set(store.manifest_keys())
        unknown_engines = on_disk - retention.indexed_keys(tx, on_disk)
    added_models = sum(_add_model(parts, digest) for digest in unknown_models)
    added_engines = sum(_add_engine(parts, key) for key in unknown_engines)
    if added_models or added_engines:
        log.info("indexed", models=added_models, engines=added_engines)
    return added_models, added_engines


def _add_model(parts: Parts, digest: str) -> bool:
    model = parts.store.inspection(digest)
    if model is None or not is_here(parts.store, model):
        return False
    found = Inspection.model_validate(model.inspection())
    with parts.database.write() as tx:
        return models.add(tx, model.digest, model.graph, model.files, found, model.created_at)


def _add_engine(parts: Parts, engine_key: str) -> bool:
    """Under the key's lock: whoever holds it publishes or removes that very engine."""
    lock = try_lock(parts.store.key_lock(engine_key), {"reindex": engine_key})
    if lock is None:
        return False
    with lock:
        manifest = parts.store.manifest(engine_key)
        if manifest is None or not parts.store.has_plan(manifest.plan.digest, manifest.plan.size):
            return False
        with parts.database.write() as tx:
            engines.add(tx, manifest)
    return True


def _manifests(parts: Parts) -> int:
    """Write manifests that are missing or damaged from the rows, where the plan is there."""
    written = 0
    with parts.database.read() as tx:
        rows = retention.all_engines(tx)
    for row in rows:
        if parts.store.manifest(row.engine_key) is None and parts.store.has_plan(row.plan.digest, row.plan.size):
            written += _write_manifest(parts, row.engine_key)
    return written


def _write_manifest(parts: Parts, engine_key: str) -> bool:
    lock = try_lock(parts.store.key_lock(engine_key), {"reindex": engine_key})
    if lock is None:
        return False
    with lock:
        with parts.database.read() as tx:
            manifest = engines.manifest(tx, engine_key)
        if manifest is not None:
            parts.store.put_manifest(Manifest.model_validate_json(manifest))
    return manifest is not None


def _inspections(parts: Parts) -> int:
    written = 0
    with parts.database.read() as tx:
        known = [model for digest in retention.all_models(tx) if (model := models.find(tx, digest))]
    for model in known:
        if parts.store.inspection(model.digest) is None and is_here(parts.store, model):
            parts.store.put_inspection(model)
            written += 1
    return written

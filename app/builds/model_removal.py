"""Remove a model, or a file that no model has, so that a file which a model comes to have meanwhile stays."""

from collections.abc import Iterator

from app.builds.parts import Parts
from app.db import models, retention
from app.db.retention import ModelUse
from app.store.sidecars import Stored


def remove_model(parts: Parts, model: ModelUse) -> bool:
    """Remove a model and those of its files that no other has; False: something refers to it by now."""
    with parts.database.write() as tx:
        if not retention.remove_model(tx, model.digest):
            return False
    parts.store.remove_inspection(model.digest)
    with parts.database.read() as tx:
        again = models.find(tx, model.digest)
    if again:  # sent again meanwhile: its inspection may be the one that went
        parts.store.put_inspection(again)
    for file in model.files:
        remove_file(parts, file.digest)
    return True


def unused_files(parts: Parts, before: float) -> Iterator[Stored]:
    """Files that no model has and that are older than `before` (seconds since the epoch)."""
    old = [one for one in parts.store.stored_models() if one.modified < before]
    used = _used(parts) if old else set()
    return (one for one in old if one.digest not in used)


def remove_file(parts: Parts, digest: str) -> bool:
    """Remove a file; False: a model has it. One whose model is added while it is out of sight is put back."""
    if digest in _used(parts):
        return False
    aside = parts.store.set_model_aside(digest)
    if aside is None:
        return False
    if digest in _used(parts):
        parts.store.put_model_back(digest, aside)
        return False
    parts.store.discard(aside.parent)
    return True


def _used(parts: Parts) -> set[str]:
    """Files of every model: those in the index, and those whose rows a lost database took with it."""
    kept = set(parts.store.inspection_digests())
    with parts.database.read() as tx:
        used = set(retention.files_in_use(tx))
        unindexed = kept - retention.known_models(tx, kept)
    found = (parts.store.inspection(digest) for digest in unindexed)
    return used | {file.digest for model in found if model for file in model.files}

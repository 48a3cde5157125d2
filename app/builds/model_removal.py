"""Remove models, and files that no model has, so that a file which a model comes to have meanwhile stays."""

from collections.abc import Collection, Iterator, Sequence

from app.builds.parts import Parts
from app.db import models, retention
from app.db.retention import ModelUse
from app.store.sidecars import Stored


def remove_models(parts: Parts, found: Sequence[ModelUse]) -> set[str]:
    """Remove models and those of their files that no other has; return which went: something may refer to one by now."""
    gone = [model for model in found if _forget(parts, model.digest)]
    remove_files(parts, {file.digest for model in gone for file in model.files})
    return {model.digest for model in gone}


def _forget(parts: Parts, digest: str) -> bool:
    with parts.database.write() as tx:
        if not retention.remove_model(tx, digest):
            return False
    parts.store.remove_inspection(digest)
    with parts.database.read() as tx:
        again = models.find(tx, digest)
    if again:  # sent again meanwhile: its inspection may be the one that went
        parts.store.put_inspection(again)
    return True


def unused_files(parts: Parts, before: float) -> Iterator[Stored]:
    """Files that no model has and that are older than `before` (seconds since the epoch)."""
    old = [one for one in parts.store.stored_models() if one.modified < before]
    used = _used(parts) if old else set()
    return (one for one in old if one.digest not in used)


def remove_files(parts: Parts, digests: Collection[str]) -> set[str]:
    """Remove files that no model has and return which went. One whose model is added while it is out of sight is put back.

    However many they are, every model is looked at twice.
    """
    used = _used(parts)
    aside = {one: path for one in digests if one not in used and (path := parts.store.set_model_aside(one))}
    used = _used(parts) if aside else used
    for digest, path in aside.items():
        if digest in used:
            parts.store.put_model_back(digest, path)
        else:
            parts.store.discard(path.parent)
    return aside.keys() - used


def _used(parts: Parts) -> set[str]:
    """Files of every model: those in the index, and those whose rows a lost database took with it."""
    kept = set(parts.store.inspection_digests())
    with parts.database.read() as tx:
        used = set(retention.files_in_use(tx))
        unindexed = kept - retention.known_models(tx, kept)
    found = (parts.store.inspection(digest) for digest in unindexed)
    return used | {file.digest for model in found if model for file in model.files}

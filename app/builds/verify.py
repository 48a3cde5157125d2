"""Compare every row with its bytes, and the bytes with the rows. Changes nothing and disturbs nobody.

What is published or removed meanwhile looks wrong for a moment, so only what is wrong twice is told.
"""

from collections.abc import Iterator
from datetime import timedelta

from app.builds.gc_rules import SETTLED
from app.builds.parts import Parts
from app.db import engines, models, retention
from trtforge.contract.engines import PlanRef
from trtforge.contract.keeping import Fault, Verification
from trtforge.contract.models import Model, ModelFile


def verify(parts: Parts, quick: bool = False) -> Verification:
    """Return everything that is wrong. Reads all bytes, unless `quick`: then sizes are compared."""
    first = _Pass(parts, None if not quick else set())
    found = list(first.faults())
    if found:
        again = set(_Pass(parts, {fault.id for fault in found}).faults())
        found = [fault for fault in found if fault in again]
    return Verification(
        ok=not found,
        quick=quick,
        engines=first.engines,
        models=first.models,
        bytes=first.bytes,
        faults=tuple(found),
    )


class _Pass:
    """One look. `hashed`: the digests whose bytes are read; None: all."""

    def __init__(self, parts: Parts, hashed: set[str] | None) -> None:
        self._parts, self._store, self._hashed = parts, parts.store, hashed
        self.engines = self.models = self.bytes = 0

    def faults(self) -> Iterator[Fault]:
        yield from self._engines()
        yield from self._models()

    # ---- engines

    def _engines(self) -> Iterator[Fault]:
        with self._parts.database.read() as tx:
            rows = retention.all_engines(tx)
        self.engines = len(rows)
        for row in rows:
            yield from self._manifest(row.engine_key)
        plans = {row.plan.digest: row.plan for row in rows}
        for plan in plans.values():
            yield from self._plan(plan)
        known = {row.engine_key for row in rows}
        for key in self._store.manifest_keys():
            if key not in known:
                manifest = self._store.manifest(key)
                if manifest is None:
                    yield Fault(kind="manifest", id=key, fault="corrupt", detail="It is no manifest of this engine.")
                else:
                    plans.setdefault(manifest.plan.digest, manifest.plan)
                    yield Fault(kind="engine", id=key, fault="unindexed", detail="It has a manifest and no row.")
        settled = (self._parts.now() - SETTLED).timestamp()
        for stored in self._store.stored_plans():
            if stored.digest not in plans and stored.modified < settled:
                yield Fault(kind="plan", id=stored.digest, fault="orphan", detail=f"{stored.size} bytes of no engine.")

    def _manifest(self, key: str) -> Iterator[Fault]:
        found = self._store.manifest(key)
        with self._parts.database.read() as tx:
            row = engines.manifest(tx, key)
        if row is None:  # removed meanwhile
            return
        if found is None and self._store.damaged(key):
            yield Fault(kind="manifest", id=key, fault="corrupt", detail="It is no manifest of this engine.")
        elif found is None:
            yield Fault(kind="manifest", id=key, fault="missing", detail="The index has one.")
        elif found.model_dump_json() != row:
            yield Fault(kind="manifest", id=key, fault="corrupt", detail="It is not the one that the index has.")

    def _plan(self, plan: PlanRef) -> Iterator[Fault]:
        if not self._store.has_plan(plan.digest, plan.size):
            gone = not self._store.open_plan(plan.digest).exists()
            detail = "Its engine is in the index." if gone else f"It has not the {plan.size} bytes it should have."
            yield Fault(kind="plan", id=plan.digest, fault="missing" if gone else "corrupt", detail=detail)
        elif self._is_read(plan.digest, plan.size) and not self._store.verify_plan(plan.digest):
            yield Fault(kind="plan", id=plan.digest, fault="corrupt", detail="Its bytes have another digest.")

    # ---- models

    def _models(self) -> Iterator[Fault]:
        with self._parts.database.read() as tx:
            digests = retention.all_models(tx)
        self.models = len(digests)
        used: set[str] = set()
        for digest in digests:
            with self._parts.database.read() as tx:
                model = models.find(tx, digest)
            if model:
                used |= {file.digest for file in model.files}
                yield from self._model(model)
        for digest in set(self._store.inspection_digests()) - set(digests):
            found = self._store.inspection(digest)
            used |= {file.digest for file in found.files} if found else set()
            yield Fault(kind="model", id=digest, fault="unindexed", detail="It has an inspection and no row.")
        before = self._parts.now() - timedelta(seconds=self._parts.settings.file_max_age_s)
        for stored in self._store.stored_models():
            if stored.digest not in used and stored.modified < before.timestamp():
                yield Fault(kind="file", id=stored.digest, fault="orphan", detail=f"{stored.size} bytes of no model.")

    def _model(self, model: Model) -> Iterator[Fault]:
        if self._store.inspection(model.digest) is None:
            detail = "Without it the store alone does not bring the model back."
            yield Fault(kind="inspection", id=model.digest, fault="missing", detail=detail)
        for file in model.files:
            yield from self._file(model, file)

    def _file(self, model: Model, file: ModelFile) -> Iterator[Fault]:
        size = self._store.model_size(file.digest)
        of = f"{file.name} of model {model.digest}"
        if size is None:
            yield Fault(kind="file", id=file.digest, fault="missing", detail=f"{of}.")
        elif size != file.size:
            yield Fault(kind="file", id=file.digest, fault="corrupt", detail=f"{of} has {size} bytes, not {file.size}.")
        elif self._is_read(file.digest, file.size) and not self._store.verify_model(file.digest):
            yield Fault(kind="file", id=file.digest, fault="corrupt", detail=f"{of}: its bytes have another digest.")

    def _is_read(self, digest: str, size: int) -> bool:
        if self._hashed is not None and digest not in self._hashed:
            return False
        self.bytes += size
        return True

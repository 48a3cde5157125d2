"""Models and the result of their one inspection."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, func, select

from app.db.session import Tx, insert_or
from app.db.tables import models
from trtforge.contract.models import Inspection, Model, ModelFile

_FIND = select(models).where(models.c.digest == bindparam("model"))  # made once, as every submit asks it


def find(tx: Tx, digest: str) -> Model | None:
    row = tx.execute(_FIND, {"model": digest}).one_or_none()
    if row is None:
        return None
    return Model(
        digest=row.digest,
        size=row.size,
        graph=row.graph,
        files=row.files,
        created_at=row.created_at,
        **row.inspection,
    )


_HOLD = select(models.c.size).where(models.c.digest == bindparam("model")).with_for_update(read=True, key_share=True)


def hold(tx: Tx, digest: str) -> int | None:
    """Keep a model from being removed until this transaction ends; return its bytes, None: it is not there."""
    return tx.execute(_HOLD, {"model": digest}).scalar_one_or_none()


def total_bytes(tx: Tx) -> int:
    return int(tx.execute(select(func.coalesce(func.sum(models.c.size), 0))).scalar_one())


def add(tx: Tx, digest: str, graph: str, files: Sequence[ModelFile], inspection: Inspection, at: datetime) -> bool:
    """Record a model; False when it is there already."""
    listed = [file.model_dump(mode="json") for file in files]
    size = sum(file.size for file in files)
    values = {"digest": digest, "size": size, "graph": graph, "files": listed, "created_at": at}
    made = (
        insert_or(tx, models).values(**values, inspection=inspection.model_dump(mode="json")).on_conflict_do_nothing()
    )
    return tx.execute(made.returning(models.c.digest)).one_or_none() is not None

"""Models and the result of their one inspection."""

from datetime import datetime

from sqlalchemy import select

from app.db.session import Tx, insert_or
from app.db.tables import models
from trtforge.contract.models import Inspection, Model


def find(tx: Tx, digest: str) -> Model | None:
    row = tx.execute(select(models).where(models.c.digest == digest)).one_or_none()
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


def add(tx: Tx, digest: str, size: int, graph: str, inspection: Inspection, at: datetime) -> bool:
    """Record a single-file model; False when it is there already."""
    file = {"name": graph, "digest": digest, "size": size}
    values = {"digest": digest, "size": size, "graph": graph, "files": [file], "created_at": at}
    made = (
        insert_or(tx, models).values(**values, inspection=inspection.model_dump(mode="json")).on_conflict_do_nothing()
    )
    return tx.execute(made.returning(models.c.digest)).one_or_none() is not None

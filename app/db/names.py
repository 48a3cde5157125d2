"""Names and what they stood for, version by version."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, tuple_

from app.db.session import Tx, insert_or
from app.db.tables import name_versions, names
from trtforge.contract.names import Name, NameVersion, Want

_columns = (names.c.name, names.c.version, names.c.want, names.c.created_at, names.c.updated_at)


def find(tx: Tx, name: str) -> Name | None:
    row = tx.execute(select(*_columns).where(names.c.name == name, names.c.want.is_not(None))).one_or_none()
    return _read(row) if row else None


def page(tx: Tx, limit: int, before: tuple[datetime, str] | None) -> list[Name]:
    """Return names newest first, those before the cursor (created_at, name)."""
    query = select(*_columns).where(names.c.want.is_not(None))
    query = query.order_by(names.c.created_at.desc(), names.c.name.desc()).limit(limit)
    if before:
        query = query.where(tuple_(names.c.created_at, names.c.name) < before)
    return [_read(row) for row in tx.execute(query)]


def history(tx: Tx, name: str) -> list[NameVersion]:
    """Return what the name stood for, newest first; nothing for a name that never was."""
    query = select(name_versions).where(name_versions.c.name == name).order_by(name_versions.c.version.desc())
    return [NameVersion(version=r.version, want=r.want, by=r.by, at=r.at) for r in tx.execute(query)]


def put(tx: Tx, name: str, want: Want | None, by: str, at: datetime) -> None:
    """Let the name stand for `want` from now on, or for nothing; the one statement that counts the version decides."""
    stored = want.model_dump(mode="json", exclude_unset=True) if want else None
    fresh = {"want": stored, "updated_at": at}
    version = tx.execute(
        insert_or(tx, names)
        .values(name=name, version=1, created_at=at, **fresh)
        .on_conflict_do_update(index_elements=["name"], set_={**fresh, "version": names.c.version + 1})
        .returning(names.c.version)
    ).scalar_one()
    tx.execute(insert(name_versions).values(name=name, version=version, want=stored, by=by, at=at))


def _read(row: Sequence[Any]) -> Name:
    name, version, stored, created_at, updated_at = row
    want = Want.model_validate(stored)
    return Name(
        name=name,
        version=version,
        model=want.model,
        spec=want.spec,
        target=want.target,
        policy=want.policy,
        created_at=created_at,
        updated_at=updated_at,
    )

"""Tokens and tickets; of both only digests are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, func, insert, or_, select, tuple_, update

from app.db.session import Tx
from app.db.tables import builds, tickets, tokens
from trtforge.contract.tokens import Token

_columns = [tokens.c[name] for name in Token.model_fields]


def add(tx: Tx, token: Token, digest: str) -> None:
    tx.execute(insert(tokens).values(**token.model_dump(), digest=digest))


def page(tx: Tx, limit: int, before: tuple[datetime, str] | None) -> list[Token]:
    """Return tokens newest first, those before the cursor (created_at, id)."""
    query = select(*_columns).order_by(tokens.c.created_at.desc(), tokens.c.id.desc()).limit(limit)
    if before:
        query = query.where(tuple_(tokens.c.created_at, tokens.c.id) < before)
    return [_read(row) for row in tx.execute(query)]


def valid(tx: Tx, now: datetime) -> list[tuple[Token, str]]:
    """Return every token that is worth something, with its digest."""
    query = select(*_columns, tokens.c.digest).where(
        tokens.c.revoked_at.is_(None), or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now)
    )
    return [(_read(row), row.digest) for row in tx.execute(query)]


def revoke(tx: Tx, token_id: str, at: datetime) -> bool:
    """Let a token be worth nothing from now on; one that was revoked keeps its time. False: there is none."""
    revoked_at = func.coalesce(tokens.c.revoked_at, at)
    found = tx.execute(update(tokens).where(tokens.c.id == token_id).values(revoked_at=revoked_at))
    return found.rowcount == 1


def used(tx: Tx, token_id: str, at: datetime) -> None:
    tx.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=at))


def _read(row: Sequence[Any]) -> Token:
    return Token(**dict(zip(Token.model_fields, row, strict=False)))


# ---- tickets


def add_ticket(tx: Tx, digest: str, build_id: str, caller: str, connect_by: datetime) -> None:
    tx.execute(insert(tickets).values(digest=digest, build_id=build_id, caller=caller, connect_by=connect_by))


@dataclass(frozen=True)
class TicketRow:
    connect_by: datetime
    used_at: datetime | None


def find_ticket(tx: Tx, digest: str, build_id: str, now: datetime, ended_since: datetime) -> TicketRow | None:
    """Return a ticket that opens the stream of this build now.

    It was not used yet and is in time; or it was, and neither its first use nor the build's end is from before
    `ended_since`. The token of whoever asked for it must not have been revoked or run out.
    """
    gone = exists().where(
        tokens.c.id == tickets.c.caller, or_(tokens.c.revoked_at.is_not(None), tokens.c.expires_at <= now)
    )
    query = select(tickets.c.connect_by, tickets.c.used_at).where(
        tickets.c.digest == digest, tickets.c.build_id == build_id, ~_spent(now, ended_since), ~gone
    )
    row = tx.execute(query).one_or_none()
    return TicketRow(*row) if row else None


def use_ticket(tx: Tx, digest: str, at: datetime) -> None:
    """Note the first use."""
    tx.execute(update(tickets).where(tickets.c.digest == digest, tickets.c.used_at.is_(None)).values(used_at=at))


def sweep_tickets(tx: Tx, now: datetime, ended_since: datetime) -> None:
    """Forget tickets that open nothing any longer."""
    tx.execute(delete(tickets).where(_spent(now, ended_since)))


def _spent(now: datetime, ended_since: datetime) -> ColumnElement[bool]:
    ended = exists().where(builds.c.id == tickets.c.build_id, builds.c.finished_at < ended_since)
    unused = tickets.c.used_at.is_(None)
    return or_(and_(unused, tickets.c.connect_by <= now), and_(~unused, tickets.c.used_at < ended_since, ended))

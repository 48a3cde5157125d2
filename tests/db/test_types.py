"""Instants come back as they went in, in UTC, on both databases."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import select
from sqlalchemy.exc import StatementError

from app.db import requests
from app.db.session import Database
from app.db.tables import idempotency_keys

DIGEST = "sha256:" + "0" * 64


def _kept(database: Database, at: datetime) -> datetime:
    with database.write() as tx:
        assert requests.remember(tx, "ann", "k", DIGEST, "req_1", at, datetime(1970, 1, 1, tzinfo=UTC))
    with database.read() as tx:
        kept: datetime = tx.execute(select(idempotency_keys.c.created_at)).scalar_one()
        return kept


@pytest.mark.parametrize(
    "at",
    [
        datetime(2026, 3, 29, 1, 30, 0, 123456, UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ],
)
def test_an_instant_comes_back_in_utc(database: Database, at: datetime) -> None:
    kept = _kept(database, at)
    assert kept == at
    assert kept.tzinfo is UTC


def test_a_naive_instant_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="naive"):
        _kept(database, datetime(2026, 1, 1))  # noqa: DTZ001


def test_instants_of_other_zones_compare_by_what_they_mean(database: Database) -> None:
    noon_utc = datetime(2026, 1, 1, 12, tzinfo=UTC)
    _kept(database, noon_utc)
    one_east = timezone(timedelta(hours=1))
    with database.read() as tx:
        assert requests.replay(tx, "ann", "k", datetime(2026, 1, 1, 12, 59, tzinfo=one_east))  # 11:59 UTC
        assert not requests.replay(tx, "ann", "k", datetime(2026, 1, 1, 13, 1, tzinfo=one_east))  # 12:01 UTC

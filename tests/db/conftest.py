"""A migrated database of each kind, and a scene on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import migrate
from app.db.session import Database
from tests.scene import Scene, opened


@pytest.fixture
def empty(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    yield made
    made.close()


@pytest.fixture
def database(empty: Database) -> Database:
    migrate.upgrade(empty)
    return empty


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(database_url, tmp_path) as one:
        yield one

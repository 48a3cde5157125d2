"""A scene on each kind of database, and one where the kind does not matter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scene import Scene, opened


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(database_url, tmp_path) as one:
        yield one


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    """On SQLite: for what has nothing to do with rows."""
    with opened(f"sqlite:///{tmp_path / 'trtforge.db'}", tmp_path) as one:
        yield one

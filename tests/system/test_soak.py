"""A soak short enough for every day; `make soak` runs it for minutes."""

from pathlib import Path

from benchmarks.soak import service, soak


def test_twenty_seconds_of_everything_at_once_lose_nothing(tmp_path: Path) -> None:
    assert soak(service(tmp_path), seconds=20, seed=3) == 0

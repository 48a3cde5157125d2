"""A few downloads while engines are replaced; `make soak` does it with a gibibyte."""

from pathlib import Path

from benchmarks.soak_downloads import replaced


def test_no_download_is_a_mixture(tmp_path: Path):
    found = replaced(tmp_path, each=2, size=1 << 20)
    assert found["downloads whole"] + found["downloads of an engine gone"] == 32
    assert found["downloads whole"] > 0

"""The demonstration keeps its promise, and says so when it cannot."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def demo(folder: Path, path: Sequence[Path | str]) -> subprocess.CompletedProcess[str]:
    """Run it where modules are looked for in `path`, in the first before all others."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "benchmarks.demo"]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, env=env, cwd=path[0])


def test_it_shows_all_four_and_leaves_nothing(tmp_path: Path):
    ended = demo(tmp_path, [ROOT, *sys.path])
    assert ended.returncode == 0, ended.stdout
    for words in ("phase started", "Answer: cached", "ended_by: ", "sha256 as the manifest says", "It ended with 0"):
        assert words in ended.stdout
    assert list(tmp_path.glob("trtforge-demo-*")) == []


def test_a_service_that_does_not_start_is_a_failure_with_its_log(tmp_path: Path):
    broken = tmp_path / "broken" / "app"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    (broken / "cli.py").write_text("raise SystemExit('broken on purpose')")
    ended = demo(tmp_path, [broken.parent, *sys.path])
    assert ended.returncode == 1
    assert "did not become ready" in ended.stdout
    assert "broken on purpose" in ended.stdout

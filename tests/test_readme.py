"""README.md says what the code does: tables, names of settings, links, and examples that run."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Server, light
from tests.readme import README, TABLES, written

ROOT = README.parent
TEXT = README.read_text()
CURLS = ["stand-in", *(["curl"] if shutil.which("curl") else [])]


def test_tables_are_those_of_the_code():
    assert written(TEXT) == TEXT, "run `make docs`"


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_is_stale_or_lost_is_noticed(table):
    start, end = f"<!-- {table} -->\n", f"<!-- /{table} -->"
    emptied = re.sub(f"{start}.*?{end}", f"{start}{end}", TEXT, flags=re.DOTALL)
    assert emptied != TEXT
    assert written(emptied) == TEXT
    with pytest.raises(ValueError, match=table):
        written(TEXT.replace(end, ""))


def test_every_variable_that_the_code_names_is_explained():
    sources = [path.read_text() for folder in ("app", "client/trtforge") for path in (ROOT / folder).rglob("*.py")]
    named = {name for text in sources for name in re.findall(r"TRTFORGE_[A-Z_]*[A-Z]", text)} - {"TRTFORGE_X_FILE"}
    assert len(named) > 5
    assert {name for name in named if name not in TEXT} == set()


def test_links_lead_to_files_of_the_repository():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if not re.match(r"[a-z]+:", link)]
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def test_make_targets_that_are_named_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {"demo", "test"} < (words := {word for pair in named for word in pair if word})
    assert words - targets == set()


@pytest.mark.parametrize("curl", CURLS)
def test_the_curl_examples_run(curl: str, server: Server, tmp_path: Path):
    example = re.search(r"<!-- curl -->\n```sh\n(.*?)```", TEXT, re.DOTALL)
    assert example
    folder = tmp_path / "work"
    folder.mkdir()
    env = {**os.environ, "URL": server.url, "MODEL": str(light("inception_v2")), "PATH": _path(curl, tmp_path)}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example[1]], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    for said in ('"alive"', "event: snapshot", "event: phase_started", "event: succeeded", "model.plan: OK"):
        assert said in ran.stdout
    answers = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert answers["submitted"]["disposition"] == "created"
    assert answers["submitted"]["build"]["labels"] == {"team": "vision"}
    assert answers["build"]["state"] == "succeeded"
    assert answers["manifest"]["plan"]["size"] == (folder / "model.plan").stat().st_size
    assert answers["again"]["disposition"] == "cached"
    stopped = answers["stopped"]
    assert stopped.get("code") == "already_ended" or stopped["cancel"]["reason"] == "not needed"


def _path(curl: str, folder: Path) -> str:
    """Find this Python first, and for the stand-in a `curl` before every other."""
    names = [str(Path(sys.executable).parent), os.environ["PATH"]]
    if curl == "stand-in":
        made = folder / "bin" / "curl"
        made.parent.mkdir()
        made.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests" / "curl.py"} "$@"\n')
        made.chmod(0o755)
        names.insert(0, str(made.parent))
    return os.pathsep.join(names)

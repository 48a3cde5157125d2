"""What is built and installed elsewhere works: the client alone, and both together with their migrations."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.conftest import Server

HERE = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, built without a network by the tools that are installed."""
    out = tmp_path_factory.mktemp("wheels")
    for source in (HERE / "client", HERE):
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)],
            check=True,
            capture_output=True,
        )
    client, service = sorted(out.glob("*.whl"), key=lambda wheel: "server" in wheel.name)
    return {"client": client, "service": service}


def installed(folder: Path, *wheels: Path) -> Path:
    """Make an environment that has the wheels and borrows their dependencies; return its interpreter.

    The dependencies are a path after its own packages, so `app` and `trtforge` can only come from the wheels: those
    installed here are editable, and a borrowed path does not read their .pth files.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    command = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps", "--python", str(python)]
    subprocess.run([*command, *map(str, wheels)], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "zz_borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TRTFORGE_", "PYTHON"))}
    return subprocess.run([str(python), *words], capture_output=True, text=True, env=env, cwd=python.parent, timeout=60)


def test_the_client_alone_has_its_commands_and_nothing_of_the_service(wheels: dict[str, Path], tmp_path: Path) -> None:
    python = installed(tmp_path / "env", wheels["client"])
    shown = subprocess.run(
        [str(python.with_name("trtforge")), "--help"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert shown.returncode == 0, shown.stderr
    assert "build" in shown.stdout
    code = (
        "import json, sys, trtforge.cli.main, trtforge.client;"
        "print(json.dumps([trtforge.__file__, sorted(n for n in sys.modules if n.split('.')[0] in "
        "('app', 'fastapi', 'sqlalchemy', 'onnx', 'tensorrt_rtx'))]))"
    )
    origin, foreign = json.loads(run(python, "-c", code).stdout)
    assert origin.startswith(str(tmp_path))
    assert foreign == []


def test_both_together_serve_from_an_empty_folder(wheels: dict[str, Path], tmp_path: Path) -> None:
    python = installed(tmp_path / "env", wheels["client"], wheels["service"])
    origin = run(python, "-c", "import app, app.db.migrate as m; print(app.__file__, m.head())")
    assert origin.stdout.startswith(str(tmp_path)), origin.stderr
    server = Server(tmp_path / "data", python=str(python)).start()  # ready: migrated, and a child has reported
    assert server.stop() == 0


def test_the_wheels_hold_no_tests_and_the_migrations(wheels: dict[str, Path]) -> None:
    service = ZipFile(wheels["service"]).namelist()
    assert "app/migrations/versions/0001_create_every_table.py" in service
    assert {name.split("/")[0] for name in service if ".dist-info/" not in name} == {"app"}
    client = ZipFile(wheels["client"]).namelist()
    assert {name.split("/")[0] for name in client if ".dist-info/" not in name} == {"trtforge"}

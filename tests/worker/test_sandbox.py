"""What a child can still reach once it is shut in, tried by a real process on the real kernel."""

import json
import os
import subprocess
import sys

import pytest

from app.worker.sandbox import landlock_abi

TRIES = """
import ctypes, json, os, socket, subprocess, sys
from pathlib import Path
from app.worker.sandbox import confine
confine(Path.cwd(), builder=sys.argv[2] == "builder")
secret = Path(sys.argv[1])
def tried(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"
def traced():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0, 0, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
def ran():
    if subprocess.run(["cat", secret], capture_output=True).returncode:
        raise OSError("cat")
print(json.dumps({
    "write here": tried(lambda: Path("mine").write_text("x")),
    "read here": tried(lambda: Path("model.onnx").read_text()),
    "read there": tried(lambda: secret.read_text()),
    "list there": tried(lambda: os.listdir(secret.parent)),
    "write there": tried(lambda: secret.with_name("new").write_text("x")),
    "shorten there": tried(lambda: os.truncate(secret, 0)),
    "link here": tried(lambda: os.link(secret, "stolen")),
    "read accounts": tried(lambda: Path("/etc/passwd").read_text()),
    "internet": tried(socket.socket),
    "local socket": tried(lambda: socket.socket(socket.AF_UNIX)),
    "trace": tried(traced),
    "signal the parent": tried(lambda: os.kill(os.getppid(), 0)),
    "run a reader": tried(ran),
    "import": tried(lambda: __import__("onnx.reference")),
}))
"""

OUTSIDE = ["read there", "list there", "write there", "shorten there", "link here", "read accounts", "run a reader"]
CALLS = ["internet", "local socket", "trace"]


@pytest.fixture
def told(tmp_path, request):
    """What became of each try: "done", or the error that the child met."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "secret").write_text("secret")
    (other / "model").write_text("a model")
    (folder / "model.onnx").symlink_to(other / "model")
    command = [sys.executable, "-c", TRIES, str(other / "secret"), request.param]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (other / "secret").read_text() == "secret"
    return json.loads(done.stdout)


@pytest.mark.parametrize("told", ["reader", "builder"], indirect=True)
def test_only_its_folder_is_left_to_a_child(told):
    assert landlock_abi() > 0, "this kernel has no Landlock: the test needs one that has"
    assert {told[what] for what in ("write here", "read here", "import")} == {"done"}
    assert {what: told[what] for what in OUTSIDE if told[what] == "done"} == {}
    assert {what: told[what] for what in CALLS if told[what] == "done"} == {}


@pytest.mark.parametrize(("marker", "ends"), [("thing-1.0.dist-info", "done"), ("data", "PermissionError")])
def test_of_the_folders_that_imports_come_from_only_those_with_packages_are_left(tmp_path, marker, ends):
    """As `pip install --target` makes them; a checkout on the path may hold the store."""
    site, folder = tmp_path / "site", tmp_path / "folder"
    (site / marker).mkdir(parents=True)
    (site / "thing.py").write_text("")
    folder.mkdir()
    script = "from pathlib import Path\nfrom app.worker.sandbox import confine\nconfine(Path.cwd())\n"
    script += "try:\n    import thing\n    print('done')\nexcept OSError as error:\n    print(type(error).__name__)\n"
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(site)])
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout.strip() == ends, done.stderr

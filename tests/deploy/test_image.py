"""The Dockerfile: linted, its steps run in an empty folder, and what comes out serves and builds as the image's user."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import START, TLS, free_port, light
from tests.deploy.image import ROOT, USER, Image, stages
from trtforge.client import Client
from trtforge.contract.builds import Submit

DOCKERFILE = (ROOT / "Dockerfile").read_text()
TOKEN = "a token of at least sixteen characters"
FULL = bool(os.environ.get("IMAGE_FROM_REGISTRY"))  # `make image`


def test_hadolint_finds_nothing():
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert linter
    done = subprocess.run([linter, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_flavour_ends_in_the_same_way():
    ends = [stage for name, stage in stages(DOCKERFILE).items() if name.startswith(("rtx", "tensorrt"))]
    assert [stage.name for stage in ends] == ["tensorrt-cu12", "tensorrt-cu13", "rtx"]  # the last is the default
    said = {re.sub(r"install-\w+|TRTFORGE_BUILDER=\w+", "", repr(stage.steps)) for stage in ends}
    assert len(said) == 1


def test_every_install_takes_the_lock_and_the_same_sources():
    installs = [stage for name, stage in stages(DOCKERFILE).items() if name.startswith("install-")]
    assert len(installs) == 3
    copied = [[step.rest for step in stage.steps if step.word == "COPY"] for stage in installs]
    assert copied[0] == copied[1] == copied[2]
    for stage in installs:
        assert any("--require-hashes -r requirements.lock" in step.rest for step in stage.steps)
        assert stage.steps[-1].rest.startswith("/opt/trtforge/bin/pip uninstall --yes")


def test_the_build_context_has_what_is_copied_and_no_more():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = [s.rest.split()[:-1] for stage in stages(DOCKERFILE).values() for s in stage.steps if s.word == "COPY"]
    assert {path for words in copies if not words[0].startswith("--") for path in words} == allowed
    assert all((ROOT / path).exists() for path in allowed)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    folder = Path(tempfile.mkdtemp(prefix="image-"))  # readable by the image's user, which pytest's folders are not
    folder.chmod(0o755)
    try:
        yield Image(folder, borrow=not FULL).make()
    finally:
        shutil.rmtree(folder)


def test_the_image_has_no_build_tools_and_runs_as_nobody(image: Image):
    assert image.user == USER
    names = {path.name for path in image.scratch.glob("opt/trtforge/lib/python*/site-packages/*")}
    assert {"app", "trtforge"} <= names
    assert names & {"pip", "hatchling", "setuptools", "tests"} == set()
    assert {path.name for path in image.scratch.iterdir()} == {"opt", "data"}


def test_the_entrypoint_serves_and_builds(image: Image):
    secret = image.scratch / "token"
    secret.write_text(TOKEN + "\n")
    secret.chmod(0o444)
    port = free_port()
    env = {k: v.replace("/data", str(image.path("/data"))) for k, v in image.env.items()}
    env |= {"TRTFORGE_PORT": str(port), "PATH": os.environ["PATH"]}
    user = image.runs_as
    own: dict[str, Any] = {} if user == os.getuid() else {"user": user, "group": user, "extra_groups": ()}
    if not own:
        os.chown(image.path("/data"), user, -1)
    command = [*image.words["ENTRYPOINT"], *image.words["CMD"]]
    bare = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, cwd="/", **own)
    assert bare.returncode == 2  # reachable by others: not without a token
    assert "TRTFORGE_ADMIN_TOKEN" in bare.stderr
    env["TRTFORGE_ADMIN_TOKEN_FILE"] = str(secret)
    env["TRTFORGE_LOCK_DIR"] = str(image.path("/data") / "locks")
    served = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, cwd="/", **own)
    try:
        _until_alive(served, port)
        healthy = subprocess.run(image.words["HEALTHCHECK"], env=env, timeout=30)
        assert healthy.returncode == 0
        with Client(f"http://127.0.0.1:{port}", TOKEN) as client:
            client.readiness(START)
            model = client.upload(light("squeezenet"))
            ended = client.wait(client.submit(Submit(model=model.digest)).request_id)
            assert ended.served, ended.failure
        assert {path.stat().st_uid for path in image.path("/data").rglob("*")} == {user}
        served.send_signal(signal.Signals[image.stop_signal])
        assert served.wait(30) == 0
        assert subprocess.run(image.words["HEALTHCHECK"], env=env, timeout=30, capture_output=True).returncode != 0
    finally:
        served.kill()
        served.communicate()


def _until_alive(served: "subprocess.Popen[str]", port: int) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        assert served.poll() is None, served.stderr and served.stderr.read()
        try:
            if httpx.get(f"http://127.0.0.1:{port}/livez", verify=TLS).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("not alive")

"""Ctrl-C and SIGTERM while a build is watched: real processes, real signals, a builder in its silent window."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.conftest import Server, light
from trtforge.client import Client
from trtforge.contract.builds import Build, Submit

WORKSPACE = iter(range(1 << 28, 1 << 29, 1 << 20))  # every test builds another engine


@contextmanager
def watching(service: Server, *words: str) -> Iterator[tuple[subprocess.Popen[str], Build, int]]:
    """Start `trtforge build` on a model whose build is long and silent; give it once the builder is silent."""
    workspace = next(WORKSPACE)
    label = f"test={workspace}"
    command = [sys.executable, "-m", "trtforge", "build", str(light("densenet121")), "--workspace", str(workspace)]
    command += ["--label", label, "--no-fetch", *words]
    pipe = subprocess.PIPE
    env = os.environ | {"TRTFORGE_URL": service.url}
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env)
    try:
        with Client(service.url) as client:
            yield process, silent_build(client, label), workspace
    finally:
        process.kill()
        process.communicate()


def silent_build(client: Client, label: str) -> Build:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for build in client.builds(label=label):
            if build.stage == "build" and build.progress and build.progress.silent_s > 0.5:
                return build
        time.sleep(0.05)
    raise AssertionError("the build never came to its silent window")


def build_of(service: Server, build_id: str) -> Build:
    with Client(service.url) as client:
        return client.build(build_id)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_withdraws_and_shows_how_it_ended(service: Server, number: signal.Signals):
    with watching(service) as (process, build, _):
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert "taking the request back" in err
        assert f"Build {build.id} was cancelled by" in err
        assert "that took" in err
        assert "cancelled by" in out.splitlines()[-1]
        assert build_of(service, build.id).state == "cancelled"


def test_json_says_it_too(service: Server):
    with watching(service, "--json") as (process, build, _):
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        told: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
        seqs = [event["seq"] for event in told if "seq" in event and event["type"] != "snapshot"]
        assert seqs == list(range(1, len(seqs) + 1))  # watched on where it was interrupted
        assert told[-2]["type"] == "cancelled"
        assert (told[-1]["state"], told[-1]["exit_code"], told[-1]["build_id"]) == ("interrupted", 130, build.id)
        assert told[-1]["cancel"]["ended_by"] in ("monitor", "killed")


def test_a_build_that_others_wait_for_goes_on(service: Server):
    with watching(service) as (process, build, workspace), Client(service.url) as client:
        joined = client.submit(Submit.model_validate({"model": build.model, "spec": {"workspace_bytes": workspace}}))
        assert joined.disposition == "joined"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert f"1 other waits for build {build.id}: it goes on." in err
        assert build_of(service, build.id).state == "running"
        client.withdraw(joined.request_id)


def test_the_second_signal_leaves_at_once(service: Server):
    with watching(service) as (process, build, _):
        process.send_signal(signal.SIGINT)
        assert process.stderr
        assert "taking the request back" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert build_of(service, build.id).state == "running"  # it left before the end of the build


def test_ctrl_c_typed_at_a_terminal(service: Server):
    ours, theirs = pty.openpty()
    label = f"test={next(WORKSPACE)}"
    command = [sys.executable, "-m", "trtforge", "build", str(light("densenet121")), "--no-fetch", "--label", label]
    command += ["--workspace", label.removeprefix("test="), "--url", service.url]
    process = subprocess.Popen(command, preexec_fn=lambda: os.login_tty(theirs), env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    shown = bytearray()
    reader = threading.Thread(target=read_all, args=(ours, shown))
    reader.start()
    with Client(service.url) as client:
        build = silent_build(client, label)
    os.write(ours, b"\x03")
    assert process.wait(30) == 130
    reader.join(10)
    os.close(ours)
    text = shown.decode()
    assert f"build {build.id} · running · build" in text
    assert "└ " in text
    assert "━" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    assert " was cancelled by" in text


def read_all(descriptor: int, into: bytearray) -> None:
    with suppress(OSError):  # EIO: the other side is closed
        while piece := os.read(descriptor, 65536):
            into += piece

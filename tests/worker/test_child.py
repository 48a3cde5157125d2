"""Our child against what happens to processes: parents that die, signals, crashes, orders to stop."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest

from app.worker.lines import request_line
from app.worker.messages import Built, Failed, InspectRequest, PhaseStarted, Stage, Stopped
from tests.worker.models import (
    CRASH_PROFILE,
    OCR,
    OCR_PROFILE,
    build_request,
    chain,
    crasher,
    folder_with,
    outcome,
    run,
    run_child,
)

CHILD = [sys.executable, "-P", "-m", "app.worker.child"]


@pytest.fixture
def long_build(tmp_path):
    """A folder with a model that builds for many seconds."""
    return folder_with(tmp_path, chain(2000))


def _wait_until(true, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def _read_until(fd: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        chunk = os.read(fd, 4096)
        assert chunk, seen
        seen += chunk


def test_kill_9_of_the_parent_ends_the_child(long_build):
    parent = f"""
        import asyncio
        from pathlib import Path
        from app.worker.process import Child
        from app.worker.messages import BuildRequest

        async def main():
            child = await Child.spawn({build_request()!r}, Path({str(long_build)!r}), lambda _: None)
            async for message in child.messages():
                print(child.pid, message.type, flush=True)

        asyncio.run(main())
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(parent)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout
        pid = next(int(line.split()[0]) for line in process.stdout if "phase_started" in line)
        assert not _gone(pid)
        process.kill()
        _wait_until(lambda: _gone(pid))


def test_the_kernel_alone_ends_a_child_whose_parent_died(long_build):
    """Its stdin stays open here, so only the parent-death signal can do it."""
    read, write = os.pipe()
    said, speaks = os.pipe()
    parent = f"""
        import os, subprocess, time
        child = subprocess.Popen({CHILD!r} + ["{speaks}", str(os.getpid())], stdin={read}, pass_fds=({speaks},),
                                 cwd={str(long_build)!r}, start_new_session=True)
        print(child.pid, flush=True)
        time.sleep(1000)
    """
    command = [sys.executable, "-c", textwrap.dedent(parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=(read, speaks)) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        os.write(write, request_line(build_request()))
        _read_until(said, b"phase_started")
        process.kill()
        _wait_until(lambda: _gone(pid))
    for fd in (read, write, said, speaks):
        os.close(fd)


def _start(folder: Path, parent: int) -> tuple[subprocess.Popen[bytes], int]:
    said, speaks = os.pipe()
    command = [*CHILD, str(speaks), str(parent)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(speaks,), cwd=folder, start_new_session=True)
    os.close(speaks)
    return process, said


def test_the_end_of_stdin_alone_ends_a_child_in_a_native_call(long_build):
    process, said = _start(long_build, os.getpid())
    with process:
        assert process.stdin
        process.stdin.write(request_line(build_request()))
        process.stdin.flush()
        _read_until(said, b"phase_started")
        process.stdin.close()
        assert process.wait(timeout=5) == -signal.SIGKILL
    os.close(said)


def test_a_child_whose_parent_died_before_it_could_ask_the_kernel_ends_at_once(tmp_path):
    process, said = _start(tmp_path, parent=os.getpid() + 1)
    with process:
        assert process.wait(timeout=20) == 2
    os.close(said)


def test_signals_of_a_terminal_do_not_reach_the_build_and_it_is_first_for_the_memory_killer(tmp_path):
    seen: dict[str, Any] = {}

    def during(child, message):
        if isinstance(message, Stage) and message.stage == "parse":
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(child.pid, number)
            seen["oom"] = int(Path(f"/proc/{child.pid}/oom_score_adj").read_text())
            seen["core"] = psutil.Process(child.pid).rlimit(psutil.RLIMIT_CORE)
            seen["group"] = os.getpgid(child.pid) == os.getsid(child.pid) == child.pid

    messages, ended, _ = run(run_child(build_request(), folder_with(tmp_path, chain(300)), during))
    assert isinstance(outcome(messages), Built)
    assert ended.code == 0
    assert seen == {"oom": 900, "core": (0, 0), "group": True}


def test_a_crash_of_the_builder_is_told_with_its_signal_and_the_stage_it_was_in(tmp_path):
    request = build_request(profiles=[CRASH_PROFILE])
    messages, ended, output = run(run_child(request, folder_with(tmp_path, crasher())))
    assert (ended.code, ended.signal) == (None, "SIGSEGV")
    assert [m.stage for m in messages if isinstance(m, Stage)] == ["parse", "build"]
    assert "[INFO] Detected 3 inputs" in output
    assert not list(tmp_path.glob("core*"))


def test_stop_in_the_middle_is_noticed_by_the_monitor(tmp_path):
    request = build_request(profiles=[OCR_PROFILE])

    def during(child, message):
        if isinstance(message, PhaseStarted):
            child.stop()

    messages, ended, _ = run(run_child(request, folder_with(tmp_path, OCR), during))
    assert outcome(messages) == Stopped("monitor")
    assert ended.code == 0
    assert not (tmp_path / "plan").exists()


def test_stop_before_the_start_is_noticed_between_the_stages(tmp_path):
    async def main():
        from app.worker.process import Child

        child = await Child.spawn(build_request(), folder_with(tmp_path, chain(1)), lambda _: None)
        child.stop()
        messages = [m async for m in child.messages()]
        await child.wait()
        return messages

    assert run(main()) == [Stopped("between_stages")]


def test_what_nobody_expected_is_our_failure_with_its_trace_in_the_log_only(tmp_path):
    (tmp_path / "plan").write_text("somebody's")
    messages, ended, output = run(run_child(build_request(), folder_with(tmp_path, chain(1))))
    failed = outcome(messages)
    assert isinstance(failed, Failed)
    assert (failed.code, ended.code) == ("internal_error", 0)
    assert "FileExistsError" in failed.message
    assert "Traceback" in output
    assert str(tmp_path) not in failed.message + output
    assert (tmp_path / "plan").read_text() == "somebody's"


def test_a_description_that_does_not_fit_into_a_line_is_refused(tmp_path):
    model = chain(1)
    extra = [onnx.helper.make_tensor_value_info(f"{'i' * 300}{n}", onnx.TensorProto.FLOAT, [1]) for n in range(3000)]
    model.graph.input.extend(extra)
    messages, ended, _ = run(run_child(InspectRequest("model.onnx", 23, {}, 60), folder_with(tmp_path, model)))
    assert (outcome(messages).code, ended.code) == ("model_unreadable", 0)

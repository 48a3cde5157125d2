"""Locks between real processes and threads."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.errors import NotReady
from app.worker.locks import Lock, read_holder, try_lock

HOLD = """
import sys, time
from pathlib import Path
from app.worker.locks import try_lock
lock = try_lock(Path(sys.argv[1]), {"build": "other"})
print("held" if lock else "busy", flush=True)
sys.stdin.readline()
"""


def _other(path):
    command = [sys.executable, "-c", HOLD, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _taken(path: Path, **holder: Any) -> Lock:
    lock = try_lock(path, holder)
    assert lock
    return lock


def _holder(path: Path) -> dict[str, Any]:
    holder = read_holder(path)
    assert holder
    return holder


def test_one_holder_at_a_time_with_its_record_beside_it(tmp_path):
    path = tmp_path / "locks" / "gpu-0"
    lock = _taken(path, build="b1", attempt=2)
    assert try_lock(path, {"build": "b2", "attempt": 1}) is None
    holder = _holder(path)
    assert (holder["build"], holder["attempt"], holder["pid"]) == ("b1", 2, os.getpid())
    assert holder["pid_started"] == psutil.Process().create_time()
    inode = path.stat().st_ino
    lock.release()
    lock.release()
    assert read_holder(path) is None
    assert path.stat().st_ino == inode
    with _taken(path):
        assert path.stat().st_ino == inode
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_another_process_is_seen_and_its_death_frees_the_lock(tmp_path):
    path = tmp_path / "locks" / "key"
    with _other(path) as other:
        assert other.stdout.readline() == "held\n"
        assert try_lock(path, {}) is None
        assert _holder(path)["pid"] == other.pid
        other.kill()
        other.wait()
    assert _holder(path)["build"] == "other"  # killed: nobody removed it, and its pid tells that it is gone
    with _taken(path, build="mine"):
        assert _holder(path)["build"] == "mine"


def test_release_from_another_thread_frees_it(tmp_path):
    path = tmp_path / "locks" / "key"
    lock = _taken(path)
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    with _other(path) as other:
        assert other.stdout.readline() == "held\n"
        other.communicate("\n")


def test_a_child_that_outlives_the_holder_does_not_hold_the_lock(tmp_path):
    path = tmp_path / "locks" / "key"
    lock = _taken(path)
    child = subprocess.Popen(["sleep", "1000"], close_fds=False)
    try:
        lock.release()
        with _other(path) as other:
            assert other.stdout.readline() == "held\n"
            other.communicate("\n")
    finally:
        child.kill()
        child.wait()


def test_a_folder_that_others_can_write_to_or_own_is_refused(tmp_path):
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for folder in (loose, link):
        with pytest.raises(NotReady, match="TRTFORGE_LOCK_DIR"):
            try_lock(folder / "gpu-0", {})


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "\x00"])
def test_a_record_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / "key.holder").write_text(text)
    assert read_holder(tmp_path / "key") is None


def test_many_threads_never_hold_it_together(tmp_path):
    path = tmp_path / "locks" / "key"
    inside, worst, held = 0, 0, 0
    guard = threading.Lock()

    def work():
        nonlocal inside, worst, held
        deadline = time.monotonic() + 20
        taken = 0
        while taken < 5 and time.monotonic() < deadline:
            lock = try_lock(path, {})
            if lock is None:
                time.sleep(0.001)
                continue
            with guard:
                inside += 1
                worst = max(worst, inside)
            with guard:
                inside -= 1
            lock.release()
            taken += 1
        with guard:
            held += taken

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (worst, held) == (1, 20)

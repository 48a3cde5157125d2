"""Staging belongs to one living process, and goes with it."""

import stat
import subprocess
import sys

from tests.store.content import left, uploaded


def test_staging_ends_with_its_owner(opened):
    one, two = opened("one"), opened("two")
    left(one.scratch("b"))
    uploaded(one)
    assert two.owner_alive("one")
    assert one.owner_alive("one")
    assert two.sweep() == []
    one.close()
    one.close()
    assert not two.owner_alive("one")
    assert two.owner_alive("never"), "it may live in another store"
    assert sorted(p.name for p in (two.root / "staging").iterdir()) == ["one.lock", "two", "two.lock"]


DIES = """
import os, signal, sys
from pathlib import Path
from app.store.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
store.open_staging("dead")
store.begin_model().write(b"half")
folder = store.scratch("b")
(folder / "plan").write_bytes(b"half")
locked = folder / "locked"
locked.mkdir()
(locked / "file").touch()
(folder / "link").symlink_to(sys.argv[1])
locked.chmod(0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_only_the_staging_of_a_dead_process_is_swept(opened):
    store = opened("alive")
    mine = left(store.scratch("b"))
    with subprocess.Popen(
        [sys.executable, "-c", DIES, str(store.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert store.owner_alive("dead")
        assert store.sweep() == []
        process.kill()
    assert not store.owner_alive("dead")
    assert store.sweep() == ["dead"]
    assert store.sweep() == []
    assert mine.exists()
    assert sorted(p.name for p in (store.root / "staging").iterdir()) == ["alive", "alive.lock", "dead.lock"]
    assert store.root.stat().st_mode & 0o777 != 0  # the sweep followed no link


def test_scratch_folders_are_private_and_never_the_same(store):
    one, two = store.scratch("b"), store.scratch("b")
    assert one != two
    assert stat.S_IMODE(one.stat().st_mode) == 0o700
    store.discard(one)
    store.discard(one)
    assert not one.exists()
    assert two.exists()


def test_what_was_written_can_be_read_at_once(store):
    """An upload is inspected before it is finished, and most models that go wrong are smaller than a buffer."""
    upload = store.begin_model()
    upload.write(b"small")
    assert upload.path.read_bytes() == b"small"

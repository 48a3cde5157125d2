"""What every store promises of plans, and what it does not take for one."""

import os
import stat
from pathlib import Path

import pytest

from app.errors import PlanRejected
from tests.store.content import CONTENT, digest, kept, left


def test_a_plan_comes_back_as_it_was_left(store):
    path = left(store.scratch("b"))
    staged = store.take_plan(path)
    assert (staged.digest, staged.size) == (digest(CONTENT), len(CONTENT))
    assert not store.has_plan(staged.digest, staged.size)
    store.put_plan(staged)
    store.put_plan(staged)  # after an error further on, publish starts again
    staged.close()
    staged.close()
    assert store.has_plan(staged.digest, staged.size)
    assert store.verify_plan(staged.digest)
    assert store.open_plan(staged.digest).read_bytes() == CONTENT
    assert stat.S_IMODE(store.open_plan(staged.digest).stat().st_mode) == 0o444
    assert not path.exists()


def test_the_same_plan_from_two_builds_is_one(store):
    assert kept(store).digest == kept(store).digest
    assert store.verify_plan(digest(CONTENT))


def test_a_damaged_plan_is_told_and_healed_by_the_next(store):
    staged = kept(store)
    path = store.open_plan(staged.digest)
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"?")
    assert store.has_plan(staged.digest, staged.size)
    assert not store.verify_plan(staged.digest)
    os.truncate(path, 5)
    assert not store.has_plan(staged.digest, staged.size)
    kept(store)
    assert store.verify_plan(staged.digest)


def test_a_removed_plan_is_gone(store):
    staged = kept(store)
    store.remove_plan(staged.digest)
    store.remove_plan(staged.digest)
    assert not store.has_plan(staged.digest, staged.size)
    assert not store.verify_plan(staged.digest)


def symlink(path):
    target = path.with_name("elsewhere")
    target.write_bytes(b"x")
    path.symlink_to(target)


def hard_link(path):
    other = path.with_name("elsewhere")
    other.write_bytes(b"x")
    os.link(other, path)


def linked_folder(path):
    real = path.parent.with_name("real")
    path.parent.rename(real)
    (real / "plan").write_bytes(b"x")
    path.parent.symlink_to(real)


@pytest.mark.parametrize(
    "leave",
    [symlink, hard_link, linked_folder, os.mkfifo, os.mkdir, lambda path: path.touch(), lambda path: None],
    ids=["symlink", "hard link", "linked folder", "fifo", "folder", "empty", "nothing"],
)
def test_what_is_no_plain_file_is_no_plan(store, leave):
    path = store.scratch("b") / "plan"
    leave(path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(PlanRejected):
        store.take_plan(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def overwritten(path):
    with path.open("r+b") as file:
        file.write(b"later")
    os.utime(path, ns=(1, 1))


def replaced(path):
    path.rename(path.with_name("first"))
    path.write_bytes(b"other")


def linked(path):
    os.link(path, path.with_name("second"))


@pytest.mark.parametrize("change", [overwritten, replaced, linked, os.unlink])
def test_a_plan_that_changed_after_it_was_hashed_is_not_kept(store, change):
    path = left(store.scratch("b"))
    with store.take_plan(path) as staged:
        change(path)
        with pytest.raises(PlanRejected):
            store.put_plan(staged)
    assert not store.open_plan(staged.digest).exists()

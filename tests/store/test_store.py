"""What every store promises."""

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from app.errors import PlanRejected, StoreUnusable
from tests.store.conftest import DIGEST, KEY, manifest_of

CONTENT = os.urandom(3 << 20)


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def uploaded(store, content=CONTENT):
    upload = store.begin_model()
    for start in range(0, len(content), 1 << 20):
        upload.write(content[start : start + (1 << 20)])
    return upload


def left(folder, content=CONTENT):
    path = folder / "plan"
    path.write_bytes(content)
    return path


def kept(store, content=CONTENT):
    with store.take_plan(left(store.scratch("b"), content)) as staged:
        store.put_plan(staged)
    return staged


# ---- models


def test_a_model_comes_back_as_it_went_in(store):
    upload = uploaded(store)
    assert (upload.digest, upload.size) == (digest(CONTENT), len(CONTENT))
    assert not store.has_model(upload.digest)
    store.put_model(upload, upload.digest)
    assert store.has_model(upload.digest)
    path = store.scratch("b") / "model.onnx"
    store.link_model(upload.digest, path)
    assert path.read_bytes() == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_putting_a_model_twice_changes_nothing(store):
    for _ in range(2):
        upload = uploaded(store)
        store.put_model(upload, upload.digest)
        store.put_model(upload, upload.digest)
        upload.abort()
    assert store.has_model(upload.digest)


def test_a_model_under_a_foreign_digest_is_not_kept(store):
    upload = uploaded(store)
    with pytest.raises(ValueError, match="not sha256:d1"):
        store.put_model(upload, DIGEST)
    assert not store.has_model(DIGEST)
    assert upload.path.exists()
    upload.abort()
    upload.abort()
    assert not upload.path.exists()


def test_an_upload_is_private_until_it_is_kept(store):
    upload = uploaded(store)
    assert stat.S_IMODE(upload.path.stat().st_mode) == 0o600


def test_a_model_that_is_not_there(store):
    with pytest.raises(FileNotFoundError):
        store.link_model(DIGEST, store.scratch("b") / "m")


def test_a_model_is_copied_where_a_link_cannot_be(store):
    upload = uploaded(store)
    store.put_model(upload, upload.digest)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        path = Path(elsewhere, "model.onnx")
        assert path.parent.stat().st_dev != store.root.stat().st_dev
        store.link_model(upload.digest, path)
        assert path.read_bytes() == CONTENT


# ---- plans


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


# ---- manifests


def test_a_manifest_comes_back_as_it_went_in(store):
    assert store.manifest(KEY) is None
    assert store.put_manifest(manifest_of()) == manifest_of()
    assert store.manifest(KEY) == manifest_of()
    assert list(store.manifests()) == [manifest_of()]
    assert not store.damaged(KEY)


def test_the_first_manifest_of_a_key_stays(store):
    store.put_manifest(manifest_of(build="first"))
    assert store.put_manifest(manifest_of(build="second")).build.id == "first"
    assert store.manifest(KEY).build.id == "first"


def test_of_many_at_once_all_get_the_same_manifest(store):
    start = threading.Barrier(8)

    def put(number):
        start.wait()
        return store.put_manifest(manifest_of(build=f"b{number}")).build.id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(put, range(8)))) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", manifest_of(key=DIGEST).model_dump_json().encode()])
def test_a_damaged_manifest_counts_as_absent_and_is_replaced(store, content):
    store.put_manifest(manifest_of())
    (path,) = (store.root / "manifests").glob("*/*.json")
    path.chmod(0o644)
    path.write_bytes(content)
    assert store.manifest(KEY) is None
    assert store.damaged(KEY)
    assert list(store.manifests()) == []
    assert store.put_manifest(manifest_of()) == manifest_of()
    assert not store.damaged(KEY)


def test_a_removed_manifest_is_gone(store):
    store.put_manifest(manifest_of())
    store.remove_manifest(KEY)
    store.remove_manifest(KEY)
    assert store.manifest(KEY) is None
    assert not store.damaged(KEY)


# ---- logs


def test_a_log_grows_and_goes(store):
    assert store.log("bld_1") is None
    store.append_log("bld_1", b"one\n")
    store.append_log("bld_1", b"two\n")
    assert store.log("bld_1") == b"one\ntwo\n"
    assert store.log("bld_2") is None
    store.remove_log("bld_1")
    store.remove_log("bld_1")
    assert store.log("bld_1") is None


# ---- names


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\0b", "a.b", "-a", "a" * 101, "a\n", "ä"])
def test_what_could_not_be_a_file_name_is_refused(store, name):
    for call in (store.log, store.scratch, store.owner_alive, store.remove_log, lambda n: store.append_log(n, b"")):
        with pytest.raises(ValueError, match="not an id"):
            call(name)


@pytest.mark.parametrize(
    "name", ["", "ab" * 32, "sha256:", "sha256:" + "AB" * 32, "sha256:../" + "a" * 61, DIGEST + "\n"]
)
def test_what_is_no_digest_is_refused(store, name):
    for call in (store.has_model, store.open_plan, store.manifest, store.key_lock, store.remove_plan):
        with pytest.raises(ValueError, match="not a sha256 digest"):
            call(name)


# ---- staging


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
    assert not two.owner_alive("never")
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


# ---- the store itself


def test_the_lock_of_a_key_is_one_file_for_all(opened):
    one, two = opened("one"), opened("two")
    assert one.key_lock(KEY) == two.key_lock(KEY)
    assert one.key_lock(KEY) != one.key_lock(DIGEST)
    with FileLock(one.key_lock(KEY)), pytest.raises(Timeout):
        FileLock(two.key_lock(KEY)).acquire(blocking=False)


def test_a_probe_leaves_nothing(store):
    before = sorted(store.root.rglob("*"))
    store.probe()
    assert sorted(store.root.rglob("*")) == before
    assert store.free_bytes() > 0


def test_a_probe_tells_that_the_store_is_gone(store):
    store.root.rename(store.root.with_name("moved"))
    with pytest.raises(StoreUnusable, match="No such file or directory") as caught:
        store.probe()
    assert str(store.root) not in str(caught.value)
    store.root.with_name("moved").rename(store.root)
    store.probe()

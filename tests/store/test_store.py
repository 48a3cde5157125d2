"""What every store promises of models, manifests, logs and names."""

import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from app.errors import StoreUnusable
from tests.store.conftest import DIGEST, KEY, manifest_of
from tests.store.content import CONTENT, digest, uploaded


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


@pytest.mark.parametrize("sizes", [(1,), (500, 500), (4 << 20, 1)], ids=str)
def test_what_was_written_can_be_read_before_it_is_finished(store, sizes):
    upload = store.begin_model()
    for size in sizes:
        upload.write(bytes(size))
    assert upload.path.stat().st_size == sum(sizes)
    upload.abort()


def test_putting_a_model_twice_changes_nothing(store):
    for _ in range(2):
        upload = uploaded(store)
        store.put_model(upload, upload.digest)
        store.put_model(upload, upload.digest)
        upload.abort()
    assert store.has_model(upload.digest)


def test_a_model_can_be_put_again_after_the_store_was_mended(store):
    upload = uploaded(store)
    in_the_way = store.root / "models" / upload.digest[7:9]
    in_the_way.touch()
    with pytest.raises(StoreUnusable):
        store.put_model(upload, upload.digest)
    in_the_way.unlink()
    store.put_model(upload, upload.digest)
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


@pytest.mark.parametrize("size", [1, 4096, 8193, 1 << 20])
def test_what_was_written_can_be_read_before_it_is_kept(store, size):
    upload = uploaded(store, CONTENT[:size])
    assert upload.path.read_bytes() == CONTENT[:size]
    upload.abort()


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


def test_a_log_grows_and_goes(store):
    assert store.log("bld_1") is None
    store.append_log("bld_1", b"one\n")
    store.append_log("bld_1", b"two\n")
    assert store.log("bld_1") == b"one\ntwo\n"
    assert store.log("bld_2") is None
    store.remove_log("bld_1")
    store.remove_log("bld_1")
    assert store.log("bld_1") is None


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

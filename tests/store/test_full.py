"""A full disk is told as such, nothing half-made stays, and the store goes on when there is room again."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import StoreFull
from app.store.disk import disk_errors

# A limit on the size of files is what a test may set without rights: the kernel cuts writes as on a full disk.
FILLS = """
import resource, sys
from pathlib import Path
from app.errors import StoreFull
from app.store.local import LocalStore
from tests.store.conftest import KEY, manifest_of

store = LocalStore(Path(sys.argv[1]))
store.open_staging("one")

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def refused(call, *args):
    try:
        call(*args)
    except StoreFull:
        return True
    return False

upload = store.begin_model()
limit(100_000)
assert refused(upload.write, bytes(200_000))
upload.abort()
limit(3)
assert refused(store.probe)
assert refused(store.put_manifest, manifest_of())
assert store.manifest(KEY) is None and not store.damaged(KEY)
assert refused(store.append_log, "bld_1", b"some text")
small = store.begin_model()
assert refused(small.write, b"12345")
assert refused(store.put_model, small, small.digest)
assert not store.has_model(small.digest)
try:
    store.put_model(small, small.digest)
except Exception as error:
    assert "earlier write" in str(error), error
else:
    raise AssertionError("an upload that failed was kept")
small.abort()
left = [p for p in (store.root / "staging" / "one").rglob("*")]
assert left == [], left
limit(resource.RLIM_INFINITY)
store.probe()
again = store.begin_model()
again.write(b"12345")
store.put_model(again, again.digest)
assert store.put_manifest(manifest_of()) == manifest_of()
print("done")
"""


def test_a_full_store_refuses_and_recovers(tmp_path):
    ran = subprocess.run([sys.executable, "-c", FILLS, str(tmp_path / "store")], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("done\n", "")


def test_no_space_left_is_a_full_store():
    with pytest.raises(StoreFull, match="No space left"), disk_errors(), Path("/dev/full").open("wb", 0) as file:
        file.write(b"x")

"""kill -9 at every step of keeping a model and of publishing: nothing is there, or all of it."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from app.store.local import LocalStore
from tests.store.conftest import KEY, manifest_of
from tests.store.crash import CONTENT, publish, put_model

DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


def crashed(folder: Path, move: str) -> list[Path]:
    """Return the stores that a move was killed in, and last the one in which it ended."""
    command = [sys.executable, "-m", "tests.store.crash", str(folder), move]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[-1:] == ["ended"], ran.stdout
    return [folder / str(step) for step in range(len(ran.stdout.split()))]


def files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def swept(root: Path) -> LocalStore:
    """Come after the crash, as the next process does, and check that only whole things and lock files are left."""
    store = LocalStore(root)
    store.open_staging("next")
    assert store.sweep() == ["dead"]
    assert [f for f in files(root) if f.startswith("staging/")] == ["staging/dead.lock", "staging/next.lock"]
    return store


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    return crashed(tmp_path, request.param)


@pytest.mark.parametrize("stores", ["put_model"], indirect=True)
def test_a_model_is_whole_or_not_there(stores):
    had = []
    for root in stores:
        store = swept(root)
        had.append(store.has_model(DIGEST))
        whole = [f"models/{DIGEST[7:9]}/{DIGEST[7:]}"] if had[-1] else []
        assert [f for f in files(root) if f.startswith("models/")] == whole
        for name in whole:
            assert (root / name).read_bytes() == CONTENT
        put_model(store)()
        assert store.has_model(DIGEST)
        store.close()
    assert had == sorted(had)
    assert had[0] is False
    assert had[-1] is True
    assert len(had) > 4


@pytest.mark.parametrize("stores", ["publish"], indirect=True)
def test_a_manifest_never_comes_before_its_plan(stores):
    seen = []
    for root in stores:
        store = swept(root)
        plan, manifest = store.verify_plan(DIGEST), store.manifest(KEY)
        assert store.open_plan(DIGEST).exists() == plan
        assert not store.damaged(KEY)
        assert manifest in (None, manifest_of())
        seen.append((plan, manifest is not None))
        publish(store)()  # the next attempt finishes it, whatever was there
        assert store.verify_plan(DIGEST)
        assert store.manifest(KEY) == manifest_of()
        store.close()
        assert len(files(root)) == 4  # plan, manifest and two lock files
    assert set(seen) == {(False, False), (True, False), (True, True)}
    assert seen == sorted(seen)

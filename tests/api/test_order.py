"""Order over HTTP and from the command line: gc, verify, reindex; early refusals for want of room; trimmed streams."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from app.builds.parts import Parts
from app.worker.locks import try_lock
from tests.api.seeded import ask, parts_of
from tests.builds.stocked import stock_engine, stock_model
from tests.conftest import Server, light
from trtforge.client import Client
from trtforge.contract.engines import Manifest
from trtforge.errors import ServiceError

TOKEN = "a-token-of-the-tests"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def stocked(tmp_path: Path) -> Iterator[tuple[Server, Manifest, Manifest]]:
    """A service that is not started yet, with an old engine and a new one of one model, and room for 1000 bytes more."""
    parts = parts_of(tmp_path / "data")
    model = stock_model(parts)
    old = stock_engine(parts, model, 1, b"an old plan", created_at=parts.now() - timedelta(days=400))
    new = stock_engine(parts, model, 2, b"a new plan")
    quota = str(parts.store.used_bytes() + 1000)
    close(parts)
    settings = {"admin_token": TOKEN, "engine_max_age_s": "86400", "gc_interval_s": "0", "max_store_bytes": quota}
    server = Server(tmp_path / "data", **settings)
    yield server, old, new
    if server.process:
        server.stop()


def close(parts: Parts) -> None:
    parts.store.close()
    parts.database.close()


def forge(server: Server, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRTFORGE_")}
    env |= {"TRTFORGE_URL": server.url, "TRTFORGE_TOKEN": TOKEN, "TRTFORGE_DATA_DIR": str(server.data)}
    return subprocess.run([sys.executable, "-m", "trtforge", *words], capture_output=True, text=True, env=env)


def test_gc_and_verify_of_a_running_service(stocked: tuple[Server, Manifest, Manifest]):
    server, old, new = stocked
    server.start()
    for path in ("/v1/gc", "/v1/verify"):
        assert ask(server, "POST", path).status_code == 401
    dry = forge(server, "gc", "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    [item] = json.loads(dry.stdout)["items"]
    assert (item["kind"], item["id"], item["bytes"]) == ("engine", old.engine_key, old.plan.size)
    assert "TRTFORGE_ENGINE_MAX_AGE_S" in item["why"]
    assert ask(server, "GET", f"/v1/engines/{old.engine_key}", headers=ADMIN).status_code == 200
    lock = try_lock(server.data / "store/locks/gc.lock", {})
    assert lock
    with lock:
        refused = ask(server, "POST", "/v1/gc", headers=ADMIN)
    assert (refused.status_code, refused.json()["code"]) == (409, "gc_running")
    assert "Retry-After" in refused.headers
    done = forge(server, "gc")
    assert old.engine_key in done.stdout
    assert "1 things went" in done.stdout
    assert ask(server, "GET", f"/v1/engines/{old.engine_key}/plan", headers=ADMIN).status_code == 404
    assert ask(server, "GET", f"/v1/engines/{new.engine_key}/plan", headers=ADMIN).content == b"a new plan"
    assert forge(server, "verify").returncode == 0
    plan = server.data / "store/plans" / new.plan.digest[7:9] / new.plan.digest[7:]
    plan.chmod(0o644)
    plan.write_bytes(b"another pl")
    assert forge(server, "verify", "--quick").returncode == 0  # the size is right
    for words in (("verify",), ("db", "verify")):
        found = forge(server, *words, "--json")
        assert found.returncode == 1, found.stderr
        [fault] = json.loads(found.stdout)["faults"]
        assert (fault["kind"], fault["id"], fault["fault"]) == ("plan", new.plan.digest, "corrupt")
    plan.unlink()
    assert "missing" in forge(server, "db", "verify").stdout


def test_a_full_quota_refuses_uploads_and_builds_early(stocked: tuple[Server, Manifest, Manifest]):
    server, _, new = stocked
    server.start()
    with Client(server.url, TOKEN) as client:
        with pytest.raises(ServiceError) as caught:
            client.upload(light("squeezenet"))  # larger than the room that is left
        assert (caught.value.problem.status, caught.value.problem.code) == (507, "store_full")
        assert "TRTFORGE_MAX_STORE_BYTES" in caught.value.problem.detail
    body = {"model": new.model.digest, "spec": {"optimization_level": 1}}
    refused = ask(server, "POST", "/v1/builds", json=body, headers=ADMIN)
    assert (refused.status_code, refused.json()["code"]) == (507, "store_full")
    assert ask(server, "GET", "/v1/builds", headers=ADMIN).json()["items"] == []


def test_the_store_alone_is_a_whole_backup(tmp_path: Path):
    """Build, lose the database, reindex: the same engine is served, and asked for again it is there."""
    server = Server(tmp_path / "data").start()
    try:
        with Client(server.url) as client:
            model = client.upload(light("squeezenet"))
            asked = {"model": model.digest, "spec": {"optimization_level": 0}}
            built = ask(server, "POST", "/v1/builds", json=asked, headers={"Prefer": "wait=60"}).json()
            key = built["build"]["engine_key"]
            manifest = client.manifest(key)
        server.stop()
        for path in server.data.glob("trtforge.db*"):
            path.unlink()
        again = forge(server, "db", "reindex")
        assert again.returncode == 0, again.stderr
        assert "1 engines, 1 models" in again.stdout
        assert "0 engines, 0 models" in forge(server, "db", "reindex").stdout
        server.start()
        assert forge(server, "db", "reindex").returncode == 2  # the service has the database
        with Client(server.url) as client:
            assert client.manifest(key) == manifest
            assert client.model(model.digest) == model
            client.fetch(key, tmp_path / "m.plan")
        assert "sha256:" + hashlib.sha256((tmp_path / "m.plan").read_bytes()).hexdigest() == manifest.plan.digest
        assert ask(server, "POST", "/v1/builds", json=asked).json()["disposition"] == "cached"
        assert forge(server, "verify").returncode == 0
    finally:
        server.stop()


def test_a_stream_of_a_build_whose_events_are_gone_still_ends(tmp_path: Path):
    server = Server(tmp_path / "data", log_max_age_s="0.001", gc_interval_s="0").start()
    try:
        with Client(server.url) as client:
            model = client.upload(light("squeezenet"))
            asked = {"model": model.digest, "spec": {"optimization_level": 0}}
            build = ask(server, "POST", "/v1/builds", json=asked, headers={"Prefer": "wait=60"}).json()["build"]
            last = max(e.seq for e in client.events(build["id"]) if e.type == "succeeded")
            kinds = {item.kind for item in client.admin.gc().items}
            assert {"events", "log"} <= kinds
            for after in (None, 2, last - 1):
                kinds_sent = [e.type for e in client.events(build["id"], after)]
                assert kinds_sent == ["snapshot", "succeeded"]
            assert client.log(build["id"]) == ""
    finally:
        server.stop()

"""Pins, and removal: shared bytes stay, a download goes on, a build in the middle of its publish loses nothing."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from app.builds.decide import Wanted, _fresh
from app.builds.parts import Parts
from app.builds.removal import remove, remove_bytes
from app.db import builds, engines, targets
from app.errors import Refused
from app.worker.locks import try_lock
from tests.api.seeded import Seed, ask, parts_of, seed, seeded
from tests.conftest import Server
from tests.domain.test_key import MODEL, SPEC, TARGET
from tests.domain.test_targets import RTX
from trtforge.contract.engines import Manifest
from trtforge.contract.events import StageEntered
from trtforge.contract.spec import BuildSpec

OTHER = SPEC.model_copy(update={"optimization_level": 5})
LARGE = bytes(32 << 20)
SEEDS: list[Seed] = [(MODEL, SPEC, TARGET, b"shared"), (MODEL, OTHER, TARGET, b"shared")]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = parts_of(tmp_path / "data")
    yield made
    made.store.close()
    made.database.close()


def code(parts: Parts, key: str) -> str:
    with pytest.raises(Refused) as caught:
        remove(parts, key)
    return caught.value.code


def is_there(parts: Parts, engine: Manifest) -> bool:
    with parts.database.read() as tx:
        row = engines.is_there(tx, engine.engine_key)
    assert (parts.store.manifest(engine.engine_key) is not None) == row
    return row


def test_shared_bytes_go_with_the_last_engine_that_has_them(parts: Parts):
    one, other = seed(parts, SEEDS)
    remove(parts, one.engine_key)
    assert not is_there(parts, one)
    assert is_there(parts, other)
    assert parts.store.verify_plan(other.plan.digest)
    assert code(parts, one.engine_key) == "not_found"
    remove(parts, other.engine_key)
    assert not is_there(parts, other)
    assert not parts.store.open_plan(other.plan.digest).exists()


def test_a_pinned_engine_stays_until_the_pin_is_gone(parts: Parts):
    one, _ = seed(parts, SEEDS)
    with parts.database.write() as tx:
        engines.pin(tx, one.engine_key, True)
    assert code(parts, one.engine_key) == "engine_pinned"
    assert is_there(parts, one)


def test_an_engine_whose_key_is_being_built_stays(parts: Parts):
    one, _ = seed(parts, SEEDS)
    lock = try_lock(parts.store.key_lock(one.engine_key), {})
    assert lock
    with lock:
        assert code(parts, one.engine_key) == "engine_busy"
        assert is_there(parts, one)
    remove(parts, one.engine_key)


def test_bytes_stay_while_any_build_publishes(parts: Parts):
    [one] = seed(parts, SEEDS[:1])
    publishing(parts)
    remove(parts, one.engine_key)
    assert not is_there(parts, one)
    assert parts.store.verify_plan(one.plan.digest)


def publishing(parts: Parts) -> None:
    """Bring another key's build to stage publish."""
    now = parts.now()
    with parts.database.write() as tx:
        target = targets.see_target(tx, "tgt_1", "sha256:" + "0" * 64, RTX.target, RTX.capabilities, now)
        wanted = Wanted(MODEL, target, TARGET, BuildSpec(), OTHER, 0, {}, False, False)
        build = _fresh(wanted, wanted.engine_key, now)
        assert builds.create(tx, build, now)
        claimed = builds.claim(tx, build.id, "wrk_1", now, now + timedelta(seconds=60))
        assert claimed
        assert builds.enter_publish(tx, build.id, claimed.attempt, [StageEntered(at=now, stage="publish")])


def test_a_plan_that_was_put_back_is_the_same_file_and_one_put_meanwhile_wins(parts: Parts):
    [one] = seed(parts, SEEDS[:1])
    store, path = parts.store, parts.store.open_plan(one.plan.digest)
    before = path.stat()
    aside = store.set_plan_aside(one.plan.digest)
    assert aside
    assert not store.has_plan(one.plan.digest, one.plan.size)
    store.put_plan_back(one.plan.digest, aside)
    assert (path.stat().st_ino, path.stat().st_nlink) == (before.st_ino, 1)
    aside = store.set_plan_aside(one.plan.digest)
    assert aside
    path.write_bytes(b"shared")
    again = path.stat().st_ino
    store.put_plan_back(one.plan.digest, aside)
    assert (path.stat().st_ino, aside.exists()) == (again, False)
    assert store.set_plan_aside("sha256:" + "0" * 64) is None
    assert not remove_bytes(parts, one.plan.digest)  # its row is there


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, list[Manifest]]]:
    seeds = [*SEEDS, (MODEL, SPEC.model_copy(update={"optimization_level": 0}), TARGET, LARGE)]
    server, manifests = seeded(tmp_path_factory.mktemp("keep") / "data", seeds, admin_token="a-token-of-the-tests")
    server.start()
    yield server, manifests
    server.stop()


def test_the_routes(kept: tuple[Server, list[Manifest]]):
    server, (one, _, large) = kept
    admin = {"Authorization": "Bearer a-token-of-the-tests"}
    address = f"/v1/engines/{one.engine_key}"
    assert ask(server, "PUT", f"{address}/pin", headers=admin).status_code == 204
    assert ask(server, "GET", "/v1/engines", headers=admin).json()["items"][-1]["pinned"] is True
    refused = ask(server, "DELETE", address, headers=admin)
    assert (refused.status_code, refused.json()["code"]) == (409, "engine_pinned")
    assert ask(server, "DELETE", f"{address}/pin", headers=admin).status_code == 204
    assert ask(server, "DELETE", address).status_code == 401
    with httpx.stream("GET", f"{server.url}/v1/engines/{large.engine_key}/plan", headers=admin) as download:
        pieces = download.iter_raw()
        got = len(next(pieces))
        assert ask(server, "DELETE", f"/v1/engines/{large.engine_key}", headers=admin).status_code == 204
        got += sum(map(len, pieces))
    assert got == len(LARGE)
    assert ask(server, "GET", f"/v1/engines/{large.engine_key}", headers=admin).status_code == 404
    for method, path in (("PUT", "/pin"), ("DELETE", "/pin"), ("DELETE", ""), ("GET", "/plan")):
        gone = ask(server, method, f"/v1/engines/{large.engine_key}{path}", headers=admin)
        assert gone.status_code == 404


def test_behind_nginx_only_the_address_of_the_bytes_is_sent(tmp_path: Path):
    server, [one] = seeded(tmp_path / "data", SEEDS[:1], accel_prefix="/inside/")
    server.start()
    try:
        address = f"/v1/engines/{one.engine_key}/plan"
        tag = {"ETag": f'"{one.plan.digest}"'}
        sent = ask(server, "GET", address)
        where = sent.headers["X-Accel-Redirect"].removeprefix("/inside/")
        assert (server.data / "store/plans" / where).read_bytes() == b"shared"
        assert (sent.status_code, sent.content, sent.headers["ETag"]) == (200, b"", tag["ETag"])
        assert ask(server, "GET", address, headers={"If-None-Match": tag["ETag"]}).status_code == 304
        assert ask(server, "GET", address, headers={"Range": "bytes=99-"}).status_code == 416
        head = ask(server, "HEAD", address)  # of these the service knows all
        assert (head.headers["Content-Length"], "X-Accel-Redirect" in head.headers) == ("6", False)
        (server.data / "store/plans" / where).unlink()
        assert ask(server, "GET", address).status_code == 410
    finally:
        server.stop()


def test_downloads_are_noted_but_not_each_of_them(kept: tuple[Server, list[Manifest]]):
    server, (_, other, _) = kept
    admin = {"Authorization": "Bearer a-token-of-the-tests"}

    def noted() -> str | None:
        items = ask(server, "GET", "/v1/engines", headers=admin).json()["items"]
        [at] = [item["last_fetched_at"] for item in items if item["engine_key"] == other.engine_key]
        return str(at) if at else None

    seen = set()
    for _ in range(3):
        assert ask(server, "GET", f"/v1/plans/{other.plan.digest}", headers=admin).status_code == 200
        end = time.monotonic() + 20
        while noted() is None:  # it is noted after the answer
            assert time.monotonic() < end
        seen.add(noted())
    assert len(seen) == 1

"""Several servers on one host and one store, each with rows of its own: lock and manifest alone keep them apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Server, light
from tests.system.api import Api, staged
from tests.system.models import SLOW, relus
from tests.system.soundness import assert_sound, children, eventually

Pair = tuple[Server, Server]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two servers that share the store and the device locks, not the database."""
    servers = []
    for name in ("one", "two"):
        url = f"sqlite:///{tmp_path / name}.db"
        server = Server(tmp_path / "data", slots="2", database_url=url, cancel_grace_s="0.5")
        server.log = tmp_path / f"{name}.log"
        servers.append(server.start())
    one, two = servers
    yield one, two
    for server in servers:
        if server.process and server.process.poll() is None:
            server.kill()


def children_started(server: Server) -> int:
    """Count the builds for which this server started a child: those that entered a stage of it."""
    api = Api(server)
    builds = api.get("/v1/builds")["items"]
    stages = [e["stage"] for b in builds for e in api.events(b["id"]) if e["type"] == "stage"]
    return stages.count("parse")


def test_two_servers_asked_for_one_engine_start_one_child(pair: Pair) -> None:
    one, two = map(Api, pair)
    model = light("densenet121")  # seconds, in which the other is sure to look at the lock
    first = one.start(model)
    digest = two.upload(model)
    one.building(first)
    second = two.submit(digest)
    assert second["disposition"] == "created"  # it has no row of the other's
    ends = [one.ended(first), two.ended(second["build"]["id"])]
    waited = [e.get("waiting_for") for e in two.events(second["build"]["id"]) if e["type"] == "waiting"]
    assert waited == ["engine_lock"]
    assert [b["state"] for b in ends] == ["succeeded", "succeeded"]
    assert ends[0]["engine"] == ends[1]["engine"]
    manifests = [api.get(f"/v1/engines/{ends[0]['engine_key']}") for api in (one, two)]
    assert manifests[0] == manifests[1]
    assert sum(map(children_started, pair)) == 1
    for server in pair:
        assert_sound(server, shared=True)


def test_neither_sweeps_the_others_staging_and_a_dead_ones_lock_is_free_at_once(pair: Pair) -> None:
    one, two = pair
    build = Api(one).start(relus(SLOW))
    wanted = Api(one).building(build)["model"]
    content = (one.data / "store" / "models" / wanted[7:9] / wanted[7:]).read_bytes()
    working = staged(one.data)
    assert working

    two.kill()
    two.start()  # which sweeps
    assert set(working) <= set(staged(one.data))
    assert Api(one).build(build)["state"] == "running"
    assert len(children(one)) == 1

    second = Api(two).submit(Api(two).upload(content))["build"]["id"]
    Api(two).until(second, lambda b: b["waiting_for"] == "engine_lock", 10)
    one.kill()
    Api(two).building(second)
    assert Api(two).http.delete(f"/v1/builds/{second}").status_code == 202
    assert Api(two).ended(second)["state"] == "cancelled"
    assert staged(two.data)  # of the dead one, until somebody starts
    one.start()
    Api(one).until(build, lambda b: b["attempt"] == 2)
    assert Api(one).http.delete(f"/v1/builds/{build}").status_code == 202
    assert Api(one).ended(build)["state"] == "cancelled"
    for server in pair:
        assert_sound(server, shared=True)


def test_a_build_that_one_finished_is_another_ones_without_a_child(pair: Pair) -> None:
    one, two = pair
    content = relus()
    key = Api(one).built(content)["engine_key"]
    build = Api(two).built(content)
    assert build["engine_key"] == key
    assert (children_started(one), children_started(two)) == (1, 0)
    eventually(lambda: Api(two).http.get(f"/v1/engines/{key}/ready").status_code == 204, 5, "not ready")
    for server in pair:
        assert_sound(server)

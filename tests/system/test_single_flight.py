"""Many clients, one child; and a build that is being stopped takes nobody in any more."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import Server, light
from tests.system.api import Api, assert_consistent, attempts_logged, digest_of
from tests.system.models import SLOW, relus

CLIENTS = 20


def test_twenty_clients_at_once_start_one_child_and_all_fetch(
    database_url: str, make_server: Callable[..., Server]
) -> None:
    server = make_server(database_url=database_url)
    model = Api(server).upload(light("inception_v1"))

    def one(_: int) -> tuple[str, str | None, str, str]:
        api = Api(server)
        submitted = api.submit(model)
        build = submitted["build"] and submitted["build"]["id"]
        request = api.http.get(f"/v1/requests/{submitted['request_id']}", headers={"Prefer": "wait=60"}).json()
        key = request["served"]["engine_key"]
        return submitted["disposition"], build, key, digest_of(api.http.get(f"/v1/engines/{key}/plan").content)

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(one, range(CLIENTS)))

    dispositions = [a[0] for a in answers]
    assert dispositions.count("created") == 1
    assert set(dispositions) <= {"created", "joined", "cached"}  # cached: one that came when the build was over
    assert len({build for _, build, _, _ in answers if build}) == 1
    assert len({(key, plan) for _, _, key, plan in answers}) == 1
    assert attempts_logged(server) == 1
    api = Api(server)
    (build,) = api.get("/v1/builds")["items"]
    assert (build["state"], build["attempt"], build["requests"]) == ("succeeded", 1, 0)
    assert_consistent(api)


def test_a_joined_build_counts_its_requests_and_outlives_all_but_the_last(make_server: Callable[..., Server]) -> None:
    api = Api(make_server())
    model = api.upload(relus(SLOW))
    first, second = api.submit(model), api.submit(model, priority=7, labels={"other": "labels"})
    assert (first["disposition"], second["disposition"]) == ("created", "joined")
    build = second["build"]
    assert build["id"] == first["build"]["id"]
    assert (build["requests"], build["priority"]) == (2, 7)

    shared = api.http.delete(f"/v1/builds/{build['id']}")
    assert (shared.status_code, shared.json()["code"], shared.json()["requests"]) == (409, "build_shared", 1)
    assert api.http.delete(f"/v1/requests/{second['request_id']}").status_code == 204
    after = api.build(build["id"])
    assert (after["requests"], after["priority"], after["cancel"]) == (1, 0, None)
    assert api.http.delete(f"/v1/requests/{first['request_id']}").status_code == 204
    assert api.ended(build["id"])["state"] == "cancelled"
    for request in (first, second):
        assert api.get(f"/v1/requests/{request['request_id']}")["state"] == "withdrawn"


def test_a_submit_during_the_grace_of_a_cancelled_build_gets_a_new_build(make_server: Callable[..., Server]) -> None:
    server = make_server(cancel_grace_s="3", slots="1")
    api = Api(server)
    old = api.start(relus(SLOW))
    model = api.building(old)["model"]
    assert api.http.delete(f"/v1/builds/{old}").status_code == 202

    submitted = api.submit(model)
    assert api.build(old)["state"] == "running"  # so this really was inside the grace
    assert submitted["disposition"] == "created"
    new = submitted["build"]["id"]
    assert new != old
    assert api.ended(old)["state"] == "cancelled"
    api.building(new)
    assert api.submit(model)["build"]["id"] == new
    assert attempts_logged(server) == 2
    assert api.http.delete(f"/v1/builds/{new}", params={"force": True}).status_code == 202
    assert api.ended(new)["state"] == "cancelled"
    assert_consistent(api)

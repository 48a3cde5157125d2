"""Submits and waits: a key that makes repeats harmless, and answers that come when there is something to say."""

from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import Server
from tests.system.api import Api, Json, digest_of
from tests.system.models import SLOW, relus, same_relus
from tests.system.problems import assert_problem, nothing_changes


def post(api: Api, body: Json, key: str, **headers: str) -> Any:
    return api.http.post("/v1/builds", json=body, headers={"Idempotency-Key": key, **headers})


def test_a_repeat_under_the_same_key_adds_nothing(api: Api) -> None:
    body = {"model": api.upload(relus(300))}
    key = uuid4().hex
    first = post(api, body, key)
    assert (first.status_code, first.json()["disposition"]) == (201, "created")
    again = post(api, body, key)
    assert (again.status_code, again.json()["disposition"]) == (201, "created")
    assert again.json()["request_id"] == first.json()["request_id"]
    build = first.json()["build"]["id"]
    api.ended(build)
    after = post(api, body, key).json()
    assert (after["request_id"], after["build"]["state"]) == (first.json()["request_id"], "succeeded")
    assert after["engine"]["engine_key"] == after["build"]["engine_key"]
    assert [e["type"] for e in api.events(build)].count("joined") == 0


def test_the_same_key_with_another_body_is_refused(api: Api) -> None:
    model = api.upload(same_relus())
    key = uuid4().hex
    api.ended(_any_build(api, post(api, {"model": model}, key).json()))
    with nothing_changes(api):
        assert_problem(post(api, {"model": model, "options": {"priority": 1}}, key), "idempotency_mismatch")


def _any_build(api: Api, submitted: Json) -> str:
    found = submitted["build"] or api.get("/v1/builds", engine_key=submitted["engine"]["engine_key"])["items"][0]
    build_id: str = found["id"]
    return build_id


def test_a_refused_submit_does_not_use_its_key_up(api: Api) -> None:
    content = relus()
    key = uuid4().hex
    body = {"model": digest_of(content)}
    assert_problem(post(api, body, key), "model_unknown")
    api.upload(content)
    answer = post(api, body, key, Prefer="wait=60")
    assert (answer.status_code, answer.json()["build"]["state"]) == (201, "succeeded")


def test_many_repeats_at_once_are_one_request(api: Api) -> None:
    body = {"model": api.upload(relus(300))}
    key = uuid4().hex
    with ThreadPoolExecutor(10) as clients:
        answers = list(clients.map(lambda _: post(Api(api.server), body, key), range(10)))
    assert {a.status_code for a in answers} == {201}
    assert len({a.json()["request_id"] for a in answers}) == 1
    build = api.ended(answers[0].json()["build"]["id"])
    assert [e["type"] for e in api.events(build["id"])].count("joined") == 0


def test_a_submit_that_prefers_to_wait_is_answered_at_the_end(api: Api) -> None:
    submitted = api.submit(api.upload(relus()), headers={"Prefer": "wait=60"})
    assert submitted["disposition"] == "created"
    assert submitted["build"]["state"] == "succeeded"
    assert submitted["engine"]["plan"] == submitted["build"]["engine"]["plan"]


@pytest.fixture(scope="module")
def endless(calm: Api) -> Json:
    """A submit whose build runs for as long as the module's tests look at it."""
    return calm.submit(calm.upload(relus(SLOW)))


def test_waits_that_are_over_say_how_things_stand(calm: Api, endless: Json) -> None:
    for path in (f"/v1/builds/{endless['build']['id']}", f"/v1/requests/{endless['request_id']}"):
        began = monotonic()
        answer = calm.http.get(path, headers={"Prefer": "wait=1"})
        assert 1 <= monotonic() - began < 4
        assert answer.status_code == 200
        assert answer.headers["preference-applied"] == "wait=1"
        assert answer.json()["state"] in ("running", "queued", "waiting")


def test_a_wait_ends_with_the_build(calm: Api, endless: Json) -> None:
    build = endless["build"]["id"]
    calm.building(build)
    with ThreadPoolExecutor(2) as clients:
        paths = (f"/v1/builds/{build}", f"/v1/requests/{endless['request_id']}")
        waits = [clients.submit(Api(calm.server).http.get, p, headers={"Prefer": "wait=60"}) for p in paths]
        calm.http.delete(f"/v1/builds/{build}")
        states = [w.result(15).json()["state"] for w in waits]
    assert states == ["cancelled", "cancelled"]


def test_a_request_says_what_it_got(shared: Server) -> None:
    api = Api(shared)
    model = api.upload(relus())
    first = api.submit(model, labels={"team": "vision"}, headers={"Prefer": "wait=60"})
    cached = api.submit(model)
    assert (cached["disposition"], cached["build"]) == ("cached", None)
    for submitted, builds in ((first, [first["build"]["id"]]), (cached, [])):
        request = api.get(f"/v1/requests/{submitted['request_id']}")
        assert (request["state"], request["builds"]) == ("served", builds)
        served = request["served"]
        assert (served["engine_key"], served["fallback"]) == (first["build"]["engine_key"], False)
    assert api.get(f"/v1/requests/{first['request_id']}")["labels"] == {"team": "vision"}
    withdrawn = api.http.delete(f"/v1/requests/{first['request_id']}")
    assert_problem(withdrawn, "already_ended")


def test_location_names_what_came_of_it(api: Api) -> None:
    model = api.upload(relus())
    created = api.http.post("/v1/builds", json={"model": model}, headers={"Prefer": "wait=60"})
    assert created.headers["location"] == f"/v1/builds/{created.json()['build']['id']}"
    cached = api.http.post("/v1/builds", json={"model": model})
    assert (cached.status_code, cached.headers["location"]) == (
        200,
        f"/v1/engines/{cached.json()['engine']['engine_key']}",
    )
    assert api.http.get(cached.headers["location"]).status_code == 200

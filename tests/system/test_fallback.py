"""What a request takes instead: real failures, real timeouts, one answer to who waits."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.conftest import Server, ocr, silero
from tests.system.api import Api, assert_consistent, children, eventually, gone
from tests.system.models import SLOW, relus

WAIT = {"Prefer": "wait=60"}


def text_lines(height: int) -> dict[str, Any]:
    """Return the spec for lines of text up to so many pixels high; the recogniser needs 48."""
    shape = [1, 3, height, 64]
    return {"profiles": [{"x": {"min": shape, "opt": shape, "max": shape}}]}


def test_who_waits_gets_the_engine_of_the_fallback(api: Api) -> None:
    model = api.upload(ocr("rec"))
    answer = api.submit(model, text_lines(32), WAIT, fallback=[{"spec": text_lines(48)}])
    assert answer["disposition"] == "created"
    built = answer["build"]
    assert built["state"] == "succeeded"
    failed = api.build(built["follows"])
    assert (failed["state"], failed["followed_by"]) == ("failed", [built["id"]])
    assert built["followed_by"] == []

    request = api.get(f"/v1/requests/{answer['request_id']}")
    assert (request["state"], request["builds"]) == ("served", [failed["id"], built["id"]])
    assert request["served"]["engine_key"] == built["engine_key"] == answer["engine"]["engine_key"]
    assert request["served"]["fallback"]
    differs = [(d["field"], d["have"], d["asked"]) for d in request["served"]["differs"]]
    assert differs == [(f"profiles.0.x.{corner}.2", 48, 32) for corner in ("max", "min", "opt")]

    again = api.submit(model, text_lines(32), WAIT, fallback=["existing"])
    assert (again["disposition"], again["build"]["id"]) == ("known_failure", failed["id"])
    assert again["engine"]["engine_key"] == built["engine_key"]


def test_a_wait_on_a_request_goes_on_through_its_builds(api: Api) -> None:
    model = api.upload(relus(SLOW))
    fallback = [{"spec": {"optimization_level": level}} for level in (1, 2)]
    request = api.submit(model, run_timeout_s=1, fallback=fallback)["request_id"]
    answer = api.http.get(f"/v1/requests/{request}", headers=WAIT).json()
    assert (answer["state"], len(answer["builds"])) == ("failed", 3)
    assert answer["failure"]["code"] == "run_timeout"
    for build, following in zip(answer["builds"], [*answer["builds"][1:], None], strict=True):
        ended = api.ended(build)
        assert (ended["state"], ended["failure"]["code"]) == ("failed", "run_timeout")
        assert ended["followed_by"] == ([following] if following else [])


def test_who_runs_out_of_time_is_answered_though_the_build_goes_on_for_another(
    database_url: str, make_server: Callable[..., Server]
) -> None:
    api = Api(make_server(database_url=database_url, cancel_grace_s="0.5"))
    model = api.upload(relus(SLOW))
    patient = api.submit(model)
    build = patient["build"]["id"]
    api.building(build)
    with ThreadPoolExecutor(1) as other:
        hasty = other.submit(lambda: Api(api.server).submit(model, None, WAIT, run_timeout_s=1))
        answer = hasty.result()
    assert answer["build"]["id"] == build
    request = api.get(f"/v1/requests/{answer['request_id']}")
    assert (request["state"], request["failure"]["code"]) == ("failed", "run_timeout")
    going = api.build(build)
    assert (going["state"], going["requests"]) == ("running", 1)  # so the answer did not wait for the build
    assert api.http.delete(f"/v1/requests/{patient['request_id']}").status_code == 204
    assert api.ended(build)["state"] == "cancelled"
    withdrawn = [(e["request_id"], e["reason"]) for e in api.events(build) if e["type"] == "withdrawn"]
    assert withdrawn == [(answer["request_id"], "run_timeout"), (patient["request_id"], None)]
    assert_consistent(api)


def test_a_chain_goes_on_after_the_server_was_killed_between_two_builds(
    database_url: str, make_server: Callable[..., Server]
) -> None:
    server = make_server(database_url=database_url, slots="1", cancel_grace_s="0.5")
    api = Api(server)
    crash = {
        "profiles": [
            {
                "input": {"min": [1, 1], "opt": [1, 512], "max": [1, 1024]},
                "state": {"min": [2, 1, 128], "opt": [2, 1, 128], "max": [2, 1, 128]},
            }
        ]
    }
    fits = {"profiles": [{**crash["profiles"][0], "input": {"min": [1, 64], "opt": [1, 512], "max": [1, 1024]}}]}
    slow = api.upload(relus(SLOW))
    first = api.submit(api.upload(silero("silero_vad_op18_ifless")), crash, fallback=[{"spec": fits}])
    ahead = api.submit(slow, priority=1)["build"]["id"]  # takes the slot before the fallback does
    request = f"/v1/requests/{first['request_id']}"
    eventually(lambda: len(api.get(request)["builds"]) == 2, 60)
    between = api.get(request)["builds"][1]
    builders = children(server)
    server.kill()
    assert gone(builders, 2)

    server.start()
    assert api.http.delete(f"/v1/builds/{ahead}").status_code == 202
    served = api.http.get(request, headers=WAIT).json()
    assert (served["state"], served["builds"]) == ("served", [first["build"]["id"], between])
    assert served["served"]["fallback"]
    assert [b["state"] for b in map(api.build, served["builds"])] == ["failed", "succeeded"]
    assert_consistent(api)

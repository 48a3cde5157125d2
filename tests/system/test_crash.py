"""What dies, when it dies: the child, the server, the builder by its own fault. Nothing is "running" for ever."""

import socket
import time
from collections.abc import Callable

import pytest

from tests.conftest import Server, silero
from tests.system.api import Api, assert_consistent, attempts_logged, child_of, children, eventually, gone, staged
from tests.system.models import SLOW, relus

CRASHES = "silero_vad_op18_ifless"
CRASH_SPEC = {
    "profiles": [
        {
            "input": {"min": [1, 1], "opt": [1, 512], "max": [1, 1024]},  # a convolution's output would be negative
            "state": {"min": [2, 1, 128], "opt": [2, 1, 128], "max": [2, 1, 128]},
        }
    ]
}
AT_ONCE = 2.0  # seconds: a lost build is found by its owner's lock, not by waiting for the lease


def test_a_killed_child_fails_its_build_and_only_that(calm: Api) -> None:
    build = calm.start(relus(SLOW))
    waiting = calm.start(relus())
    calm.building(build)
    child_of(calm.server).kill()
    ended = calm.ended(build, 5)
    assert ended["state"] == "failed"
    failure = ended["failure"]
    assert (failure["code"], failure["stage"], failure["retryable"]) == ("builder_killed", "build", True)
    assert failure["remedy"]
    assert calm.ended(waiting)["state"] == "succeeded"
    again = calm.submit(ended["model"])
    assert again["disposition"] == "created"  # not remembered: memory of the host is not the model's fault
    calm.http.delete(f"/v1/builds/{again['build']['id']}")
    calm.ended(again["build"]["id"])
    assert_consistent(calm)


def test_a_builder_that_crashes_is_remembered_then_quarantined_and_others_go_on(calm: Api) -> None:
    model = calm.upload(silero(CRASHES))
    first = calm.submit(model, CRASH_SPEC)
    assert first["disposition"] == "created"
    ended = calm.ended(first["build"]["id"])
    assert ended["state"] == "failed"
    failure = ended["failure"]
    assert (failure["code"], failure["retryable"]) == ("builder_crashed", False)
    assert failure["where"]["signal"] == "SIGSEGV"
    assert "SIGSEGV" in failure["message"]
    request = calm.get(f"/v1/requests/{first['request_id']}")
    assert (request["state"], request["failure"]["code"]) == ("failed", "builder_crashed")

    known = calm.submit(model, CRASH_SPEC)
    assert known["disposition"] == "known_failure"
    assert known["build"]["id"] == ended["id"]
    assert calm.get(f"/v1/requests/{known['request_id']}")["state"] == "failed"

    retried = calm.submit(model, CRASH_SPEC, retry=True)
    assert retried["disposition"] == "created"
    assert calm.ended(retried["build"]["id"])["failure"]["code"] == "builder_crashed"
    refused = calm.http.post("/v1/builds", json={"model": model, "spec": CRASH_SPEC})
    assert (refused.status_code, refused.json()["code"]) == (409, "quarantined")
    assert refused.json()["builds"] == [retried["build"]["id"], ended["id"]]

    fits = {"profiles": [{**CRASH_SPEC["profiles"][0], "input": {"min": [1, 64], "opt": [1, 512], "max": [1, 1024]}}]}
    assert calm.built(silero(CRASHES), fits)["state"] == "succeeded"
    assert calm.http.get("/readyz").status_code == 200
    assert_consistent(calm)


def test_a_killed_server_loses_its_child_at_once_and_builds_again(
    database_url: str, make_server: Callable[..., Server]
) -> None:
    server = make_server(database_url=database_url)
    api = Api(server)
    kept = api.built(relus())
    build = api.start(relus(2000))
    api.building(build)
    builders = children(server)
    server.kill()
    assert gone(builders, 2)

    server.start()
    api.until(build, lambda b: b["attempt"] == 2 and b["state"] == "running", AT_ONCE)
    ended = api.ended(build)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)
    kinds = [e["type"] for e in api.events(build)]
    assert kinds.count("started") == 2
    assert kinds.count("requeued") == 1
    assert kinds.count("phase_started") == kinds.count("phase_finished")  # those of the lost attempt are closed too
    assert api.submit(kept["model"])["disposition"] == "cached"
    assert_consistent(api)


def test_three_losses_end_a_build(make_server: Callable[..., Server]) -> None:
    server = make_server()
    api = Api(server)
    build = api.start(relus(SLOW))
    request = api.submit(api.build(build)["model"])["request_id"]
    for attempt in (1, 2, 3):
        assert api.building(build)["attempt"] == attempt
        builders = children(server)
        server.kill()
        assert gone(builders, 2)
        server.start()
    ended = api.ended(build, AT_ONCE)
    assert (ended["state"], ended["failure"]["code"], ended["attempt"]) == ("failed", "worker_lost", 3)
    assert ended["failure"]["retryable"]
    assert api.get(f"/v1/requests/{request}")["state"] == "failed"
    assert attempts_logged(server) == 3
    assert children(server) == []
    assert_consistent(api)


def test_a_build_that_was_asked_to_stop_is_cancelled_by_the_next_server(make_server: Callable[..., Server]) -> None:
    server = make_server(cancel_grace_s="60")
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    assert api.http.request("DELETE", f"/v1/builds/{build}", json={"reason": "too slow"}).status_code == 202
    assert api.build(build)["state"] == "running"
    server.kill()
    server.start()
    ended = api.ended(build, AT_ONCE)
    assert ended["state"] == "cancelled"
    assert (ended["cancel"]["ended_by"], ended["cancel"]["reason"]) == ("worker_lost", "too slow")
    assert_consistent(api)


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.25])
def test_a_server_killed_at_any_moment_of_a_build_leaves_a_whole_engine_or_none(
    moment: float, make_server: Callable[..., Server]
) -> None:
    """The moment is a seed, not a claim: whatever is under way then, the same must hold afterwards."""
    server = make_server()
    api = Api(server)
    digest = api.upload(relus())
    submitted = api.submit(digest)
    time.sleep(moment)
    server.kill()
    server.start()
    assert api.ended(submitted["build"]["id"])["state"] == "succeeded"
    assert api.http.get(f"/v1/requests/{submitted['request_id']}").json()["state"] == "served"
    assert_consistent(api)


def test_a_server_killed_while_models_come_in_leaves_nothing_of_them(make_server: Callable[..., Server]) -> None:
    server = make_server()
    api = Api(server)
    with socket.create_connection(("127.0.0.1", server.port)) as cut:
        cut.sendall(
            b"PUT /v1/models/sha256:" + b"0" * 64 + b" HTTP/1.1\r\nHost: here\r\nContent-Length: 10000000\r\n\r\n"
        )
        cut.sendall(bytes(5_000_000))
        eventually(lambda: staged(server.data))
        server.kill()
    server.start()
    assert_consistent(api)
    assert api.http.get("/v1/models/sha256:" + "0" * 64).status_code == 404

"""What the client makes of refusals, silence, cuts and restarts."""

import socket
from time import monotonic

import pytest

from tests.client.scripted import Scripted, answer, problem, stream
from tests.client.wire import ASK, AT, DIGEST, SUBMITTED, TARGET, client, failed, queued
from trtforge.client import Client
from trtforge.contract.events import Stored
from trtforge.errors import ServiceError, ServiceUnreachable

# ---- refusals and silence


def test_a_problem_becomes_an_exception_that_says_the_remedy():
    body = problem(422, "profile_required", template=[{"x": {}}])
    with Scripted([answer("422 Unprocessable Content", body, Retry_After="7")]) as server, client(server) as c:
        with pytest.raises(ServiceError) as caught:
            c.targets()
        assert str(caught.value) == "It is so. Do this."
        assert (caught.value.code, caught.value.retry_after) == ("profile_required", 7.0)
        assert caught.value.members["template"] == [{"x": {}}]
        assert server.asked[0].headers["authorization"] == "Bearer secret-token-of-a-test"


def test_a_proxys_page_is_told_apart():
    page = answer("502 Bad Gateway", b"<html>", Content_Type="text/html")
    with (
        Scripted([page]) as server,
        client(server) as c,
        pytest.raises(ServiceError, match=r"502 .text/html.") as caught,
    ):
        c.targets()
    assert caught.value.code == "unavailable"


def free_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return f"http://127.0.0.1:{s.getsockname()[1]}"


def test_nobody_there_names_the_address_and_the_fix():
    url = free_url()
    with Client(url) as c, pytest.raises(ServiceUnreachable, match=f"{url}.*trtforge serve.*TRTFORGE_URL"):
        c.targets()


@pytest.mark.parametrize("url", ["localhost:80", "http://[::1", "http://exa mple", "ftp://x", "http://x:99999"])
def test_an_address_that_is_none_is_said_so(url: str):
    with pytest.raises(ServiceUnreachable), Client(url, patience_s=0) as c:
        c.targets()


def test_the_address_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    with Scripted([answer(body={"items": []})]) as server:
        monkeypatch.setenv("TRTFORGE_URL", server.url + "/")
        monkeypatch.setenv("TRTFORGE_TOKEN", "from-environment")
        with Client() as c:
            assert c.targets().items == ()
        assert server.asked[0].headers["authorization"] == "Bearer from-environment"
        assert server.asked[0].path == "/v1/targets"


# ---- submit


def test_submit_is_sent_again_under_the_same_key():
    busy = answer("503 Service Unavailable", problem(503, "unavailable"), Retry_After="0")
    with Scripted([b"", busy, answer(body=SUBMITTED)]) as server, client(server) as c:
        assert c.submit(ASK, wait_s=3).request_id == "req_1"
        assert len({a.headers["idempotency-key"] for a in server.asked}) == 1
        assert len({a.body for a in server.asked}) == 1
        assert len(server.asked) == 3
        assert server.asked[0].headers["prefer"] == "wait=3"


def test_submit_gives_up_when_patience_is_used_up():
    with Scripted([b""]) as server, client(server, patience_s=0.5) as c, pytest.raises(ServiceUnreachable):
        c.submit(ASK)
    assert 1 < len(server.asked) < 5


def test_a_refused_submit_is_not_repeated():
    with Scripted([answer("422 X", problem(422, "profile_invalid"))]) as server, client(server) as c:
        with pytest.raises(ServiceError):
            c.submit(ASK)
        assert len(server.asked) == 1


# ---- events


def test_events_go_on_after_a_cut_where_they_stopped():
    first = stream([queued(1), queued(2)], tail=b'id: 3\ndata: {"type": "que')
    second = stream([queued(2), queued(3), failed(4), queued(5)])
    with Scripted([first, second]) as server, client(server) as c:
        assert [e.seq for e in c.events("b") if isinstance(e, Stored)] == [1, 2, 3, 4]
        assert "last-event-id" not in server.asked[0].headers
        assert server.asked[1].headers["last-event-id"] == "2"


def test_draining_reconnects_and_unknown_types_are_passed_over():
    first = stream([queued(1), {"type": "draining", "reconnect_after_s": 0.01}, queued(2)])
    second = stream([{"type": "from_the_future", "seq": 2, "at": AT}, failed(3)])
    with Scripted([first, second]) as server, client(server) as c:
        assert [e.type for e in c.events("b")] == ["queued", "draining", "failed"]


def test_204_ends_the_events():
    with Scripted([answer("204 No Content")]) as server, client(server) as c:
        assert list(c.events("b", after=9)) == []
        assert server.asked[0].headers["last-event-id"] == "9"


def test_an_unknown_build_is_refused_at_once():
    with Scripted([answer("404 Not Found", problem(404, "not_found"))]) as server, client(server) as c:
        with pytest.raises(ServiceError):
            list(c.events("b"))
        assert len(server.asked) == 1


def test_a_stream_that_always_ends_early_is_given_up():
    with Scripted([stream([])]) as server, client(server, patience_s=0.5) as c, pytest.raises(ServiceUnreachable):
        list(c.events("b"))


# ---- pages


def test_pages_follow_one_another_lazily():
    def engine(n: int) -> dict[str, object]:
        plan = {"digest": DIGEST, "size": n}
        return {"engine_key": DIGEST, "model": DIGEST, "target": TARGET, "plan": plan, "created_at": AT} | {
            "last_fetched_at": None,
            "pinned": False,
        }

    pages = [{"items": [engine(1), engine(2)], "next_cursor": "c2"}, {"items": [engine(3)], "next_cursor": None}]
    with Scripted([answer(body=p) for p in pages]) as server, client(server) as c:
        found = c.engines(builder="tensorrt_rtx", page_size=2)
        assert next(found).plan.size == 1
        assert len(server.asked) == 1
        assert [e.plan.size for e in found] == [2, 3]
        assert server.asked[1].path == "/v1/engines?builder=tensorrt_rtx&limit=2&cursor=c2"


# ---- readiness


def test_readiness_waits_and_then_says_what_is_missing():
    starting = answer("503 X", problem(503, "unavailable", "No worker yet."))
    with Scripted([starting, answer()]) as server, client(server) as c:
        c.readiness(wait_s=5)
        assert len(server.asked) == 2
    with Scripted([starting]) as server, client(server) as c, pytest.raises(ServiceError, match="No worker yet"):
        c.readiness(wait_s=0.3)


def test_ready_is_a_question_with_three_answers():
    answers = ["204 No Content", "503 X", "404 X"]
    bodies = [
        answer(answers[0]),
        answer(answers[1], problem(503, "unavailable")),
        answer(answers[2], problem(404, "not_found")),
    ]
    with Scripted(bodies) as server, client(server) as c:
        assert (c.ready(DIGEST), c.ready(DIGEST)) == (True, False)
        with pytest.raises(ServiceError):
            c.ready(DIGEST)


def test_a_service_that_was_never_there_is_not_waited_for():
    begun = monotonic()
    with Client(free_url(), patience_s=30) as c:
        for call in (lambda: list(c.events("b")), lambda: c.submit(ASK)):
            with pytest.raises(ServiceUnreachable):
                call()
    assert monotonic() - begun < 10


def test_a_service_that_went_away_is_waited_for():
    first = Scripted([stream([queued(1)])])
    with first, client(first, patience_s=20) as c:
        events = c.events("b")
        assert next(events).type == "queued"
        first.close()
        with Scripted([stream([failed(2)])], port=int(first.url.rpartition(":")[2])):
            assert [e.type for e in events] == ["failed"]

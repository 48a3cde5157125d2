"""Events as a real SSE client sees them: a snapshot, then every stored event once, in order, and one end."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import httpx
import pytest

from tests.conftest import Server, light
from tests.system.api import ENDED, Api, Json
from tests.system.models import SLOW, relus
from trtforge.client import Client
from trtforge.contract import events as ev
from trtforge.contract.builds import TERMINAL


class Frame:
    def __init__(self, lines: list[str]) -> None:
        fields = [line.partition(": ")[::2] for line in lines]
        self.names = [name for name, _ in fields]
        self.id = next((int(value) for name, value in fields if name == "id"), None)
        self.event = next((value for name, value in fields if name == "event"), None)
        self.data: Any = json.loads("".join(value for name, value in fields if name == "data") or "null")


def frames(lines: Iterator[str]) -> Iterator[Frame]:
    """Yield the frames of a stream; those without data (`retry:`) are read over."""
    while frame := list(takewhile(bool, lines)):
        if any(line.startswith("data:") for line in frame):
            yield Frame(frame)


@contextmanager
def stream(api: Api, build: str, **asked: Any) -> Iterator[Iterator[Frame]]:
    with api.http.stream("GET", f"/v1/builds/{build}/events", **asked) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield frames(answer.iter_lines())


def read(api: Api, build: str, after: int | None = None) -> list[Frame]:
    headers = {"Last-Event-ID": str(after)} if after is not None else {}
    with stream(api, build, headers=headers) as incoming:
        return list(incoming)


def stored(seen: list[Frame]) -> list[Json]:
    return [f.data for f in seen if f.id is not None]


@pytest.fixture(scope="module")
def ended(shared: Server) -> str:
    """A build that has ended."""
    build: str = Api(shared).built(relus())["id"]
    return build


def test_curl_sees_a_build_from_its_snapshot_to_its_one_end(shared: Server) -> None:
    api = Api(shared)
    build = api.start(light("shufflenet"))
    command = ["curl", "-sN", "-H", "Accept: text/event-stream", f"{shared.url}/v1/builds/{build}/events"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert text.startswith("retry: 2000\n\n")
    seen = list(frames(iter(text.splitlines()[2:])))

    first = seen[0]
    assert (first.event, first.id, first.data["type"]) == ("snapshot", None, "snapshot")
    assert first.data["build"]["id"] == build
    ids = [f.id for f in seen if f.id is not None]
    assert ids == list(range(1, len(ids) + 1))
    for frame in seen:
        assert frame.event == frame.data["type"]
        assert frame.id == (frame.data["seq"] if frame.event != "snapshot" and "seq" in frame.data else None)
    assert [f.event for f in seen if f.event in ENDED] == ["succeeded"]
    assert seen[-1].event == "succeeded"

    opened = {f.data["phase"]["id"]: f.data["phase"] for f in seen if f.event == "phase_started"}
    closed = [f.data["phase"]["id"] for f in seen if f.event == "phase_finished"]
    assert sorted(closed) == sorted(opened)
    parents = [p["parent"] for p in opened.values() if p["parent"] is not None]
    assert parents
    assert set(parents) <= set(opened)
    beats = [f.data for f in seen if f.event == "heartbeat"]
    assert beats
    assert all(b["elapsed_s"] >= 0 and b["silent_s"] >= 0 for b in beats)
    steps = [f.data["phase"] for f in seen if f.event == "phase_progress"]
    assert steps
    assert {s["id"] for s in steps} <= set(opened)


def test_heartbeats_come_while_the_builder_is_silent(calm: Api) -> None:
    build = calm.start(relus(SLOW))
    calm.until(build, lambda b: b["stage"] == "build" and b["progress"]["silent_s"] > 1)
    with stream(calm, build) as incoming:
        beats = [f.data for f, _ in zip((f for f in incoming if f.event == "heartbeat"), range(4), strict=False)]
    silences = [b["silent_s"] for b in beats]
    assert silences == sorted(silences)
    assert silences[-1] > silences[0] + 1
    assert beats[-1]["activity"] == "working"
    assert beats[-1]["cpu_s"] > beats[0]["cpu_s"]
    assert beats[-1]["rss_bytes"] > 1 << 20
    calm.http.delete(f"/v1/builds/{build}")
    calm.ended(build)


def test_reconnecting_at_every_id_misses_and_repeats_nothing(api: Api, ended: str) -> None:
    whole = stored(read(api, ended))
    last = whole[-1]["seq"]
    assert last > 10
    for cut in range(last):
        seen = read(api, ended, cut)
        assert seen[0].event == "snapshot"
        assert seen[0].data["seq"] == last
        assert stored(seen) == whole[cut:]


@pytest.mark.parametrize("beyond", [0, 1, 10**8])
def test_after_the_end_there_is_nothing_to_come_back_for(api: Api, ended: str, beyond: int) -> None:
    last = api.events(ended)[-1]["seq"]
    for asked in ({"headers": {"Last-Event-ID": str(last + beyond)}}, {"params": {"after": last + beyond}}):
        answer = api.http.get(f"/v1/builds/{ended}/events", **asked)
        assert (answer.status_code, answer.content) == (204, b"")


def test_cutting_a_live_stream_again_and_again_misses_and_repeats_nothing(api: Api) -> None:
    build = api.start(light("inception_v2"))
    got: list[Json] = []
    last = None
    while not got or got[-1]["type"] not in ENDED:
        with stream(api, build, headers={"Last-Event-ID": str(last)} if last else {}) as incoming:
            for frame, _ in zip(incoming, range(7), strict=False):
                if frame.id is not None:
                    got.append(frame.data)
                    last = frame.id
    assert [e["seq"] for e in got] == list(range(1, len(got) + 1))
    assert got == api.events(build)


def test_after_is_for_clients_that_cannot_set_headers_and_the_header_wins(api: Api, ended: str) -> None:
    whole = api.events(ended)
    with stream(api, ended, params={"after": 5}) as incoming:
        assert stored(list(incoming)) == whole[5:]
    with stream(api, ended, params={"after": 1}, headers={"Last-Event-ID": "7"}) as incoming:
        assert stored(list(incoming)) == whole[7:]
    with stream(api, ended, headers={"Last-Event-ID": ""}) as incoming:
        assert stored(list(incoming)) == whole


def test_ndjson_says_the_same_in_lines(api: Api, ended: str) -> None:
    answer = api.http.get(f"/v1/builds/{ended}/events", headers={"Accept": "application/x-ndjson"})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines[0]["type"] == "snapshot"
    assert lines[1:] == stored(read(api, ended))


def test_a_stream_on_a_queued_build_tells_what_it_waits_for_and_follows_it(calm: Api) -> None:
    running = calm.start(relus(SLOW))
    calm.building(running)
    queued = calm.start(relus())
    with stream(calm, queued) as incoming:
        first = next(incoming).data["build"]
        assert (first["state"], first["queue_position"], first["progress"]) == ("queued", 0, None)
        assert next(f for f in incoming if f.event == "heartbeat").data["elapsed_s"] == 0
        calm.http.delete(f"/v1/builds/{running}")
        assert [f.event for f in incoming][-1] == "succeeded"
    calm.ended(running)


def test_our_client_follows_across_a_server_that_was_killed(make_server: Callable[..., Server]) -> None:
    server = make_server()
    api = Api(server)
    build = api.start(relus(2000))
    seqs, killed = [], False
    with Client(server.url, patience_s=60) as client:
        for event in client.events(build):
            if isinstance(event, ev.Stored):
                seqs.append(event.seq)
            if isinstance(event, ev.StageEntered) and event.stage == "build" and not killed:
                server.kill()
                server.start()
                killed = True
        assert client.build(build).state in TERMINAL
    assert seqs == list(range(1, len(seqs) + 1))
    kinds = [e["type"] for e in api.events(build)]
    assert len(kinds) == len(seqs)
    assert kinds.count("requeued") == 1


def test_streams_end_with_draining_when_the_server_stops(make_server: Callable[..., Server]) -> None:
    server = make_server(drain_s="0.5", cancel_grace_s="0.5")
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    with stream(api, build) as incoming:
        assert next(incoming).event == "snapshot"
        assert server.process is not None
        server.process.terminate()
        seen = list(incoming)
    assert seen[-1].event == "draining"
    assert seen[-1].data["reconnect_after_s"] > 0
    assert not any(f.event in ENDED for f in seen)
    assert server.process.wait(10) == 0


def test_a_hundred_open_streams_do_not_hold_the_server_up(make_server: Callable[..., Server]) -> None:
    server = make_server(drain_s="0.5", cancel_grace_s="0.5", max_waiters="100")
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    path = f"{server.url}/v1/builds/{build}/events"
    limits = httpx.Limits(max_connections=200)
    with httpx.Client(limits=limits, timeout=30) as many:
        answers = [many.send(many.build_request("GET", path), stream=True) for _ in range(100)]
        bodies = [answer.iter_raw() for answer in answers]  # kept: one that is let go closes its connection
        assert all(next(body).startswith(b"retry") for body in bodies)
        refused = many.get(path)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
        assert int(refused.headers["retry-after"]) > 0
        assert server.process is not None
        server.process.terminate()
        assert server.process.wait(8) == 0
        for answer in answers:
            answer.close()

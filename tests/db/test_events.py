"""Events are numbered by their build's row: no gap, no number twice, nothing written when the conditions are not met."""

import subprocess
import sys

import pytest

from app.db import builds, events, requests
from app.db.events import advance, events_after
from app.db.tables import builds as rows
from tests.scene import Scene, at_once, fine
from trtforge.contract import events as ev

WRITERS, EACH = 8, 12

WRITE = """
import sys
from datetime import UTC, datetime
from app.db.events import advance
from app.db.session import Database
from trtforge.contract.events import Log
url, build, writer, each = sys.argv[1:]
database = Database(url)
print("started", flush=True)
sys.stdin.readline()
for i in range(int(each)):
    with database.write() as tx:
        advance(tx, build, [Log(at=datetime.now(UTC), level="warning", text=f"{writer} {i}"), Log(at=datetime.now(UTC), level="error", text=f"{writer} {i}")])
"""


def _log(scene: Scene, text: str) -> ev.Log:
    return ev.Log(at=scene.clock(), level="warning", text=text)


def _whole(scene: Scene, build_id: str, writers: int) -> None:
    stored = [e for e in scene.events(build_id) if isinstance(e, ev.Log)]
    everything = scene.events(build_id)
    assert [e.seq for e in everything] == list(range(1, scene.build(build_id).last_seq + 1))
    for writer in range(writers):
        mine = [e.text for e in stored if e.text.startswith(f"{writer} ")]
        assert mine == [f"{writer} {i}" for i in range(EACH) for _ in range(2)], "each writer's own order is kept"
    assert all(a.text == b.text and b.seq == a.seq + 1 for a, b in zip(stored[::2], stored[1::2], strict=True))


def test_eight_threads_leave_no_gap(scene: Scene) -> None:
    build = scene.queued()

    def write(writer: int) -> None:
        for i in range(EACH):
            with scene.parts.database.write() as tx:
                advance(tx, build.id, [_log(scene, f"{writer} {i}")] * 2)

    fine(at_once(*(lambda w=w: write(w) for w in range(WRITERS))))
    _whole(scene, build.id, WRITERS)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_four_processes_leave_no_gap(scene: Scene) -> None:
    build, url = scene.queued(), scene.parts.settings.url
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, url, build.id, str(w), str(EACH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for w in range(4)
    ]
    for writer in writers:
        assert writer.stdout
        writer.stdout.readline()
    for writer in writers:
        assert writer.stdin
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    _whole(scene, build.id, 4)


def test_nothing_is_written_when_a_condition_is_not_met(scene: Scene) -> None:
    build = scene.queued()
    with scene.parts.database.write() as tx:
        assert advance(tx, build.id, [_log(scene, "x")], rows.c.state == "running", priority=7) is None
        assert advance(tx, "bld_none", [_log(scene, "x")]) is None
    assert scene.build(build.id) == build
    assert scene.kinds(build.id) == ["queued"]


def test_a_transaction_that_fails_takes_its_numbers_back(scene: Scene) -> None:
    build = scene.queued()
    with pytest.raises(ZeroDivisionError), scene.parts.database.write() as tx:  # noqa: PT012
        advance(tx, build.id, [_log(scene, "x")])
        raise ZeroDivisionError
    with scene.parts.database.write() as tx:
        numbered = advance(tx, build.id, [_log(scene, "y")])
    assert numbered
    assert numbered[0].seq == build.last_seq + 1


def test_numbers_attempt_and_requests_are_filled_in(scene: Scene) -> None:
    build = scene.running()
    with scene.parts.database.write() as tx:
        joined = ev.Joined(at=scene.clock(), request_id="req_2")
        stage = ev.StageEntered(at=scene.clock(), stage="parse")
        numbered = advance(tx, build.id, [joined, stage], requests=rows.c.requests + 1)
    assert numbered
    assert [(e.seq, e.attempt) for e in numbered] == [(build.last_seq + 1, 1), (build.last_seq + 2, 1)]
    assert isinstance(numbered[0], ev.Joined)
    assert numbered[0].requests == 2
    assert scene.events(build.id)[-2:] == numbered, "what is returned is what is stored"


def test_no_events_change_the_row_and_no_number(scene: Scene) -> None:
    build = scene.running()
    with scene.parts.database.write() as tx:
        assert builds.renew(tx, build.id, 1, scene.clock(), {"elapsed_s": 1.0}) is True
    after = scene.build(build.id)
    assert (after.last_seq, after.progress) == (build.last_seq, {"elapsed_s": 1.0})


def test_events_after_a_number_are_exactly_the_later_ones(scene: Scene) -> None:
    build = scene.running()
    other = scene.queued(1)
    last = build.last_seq
    for seq in range(-1, last + 3):
        with scene.parts.database.read() as tx:
            found = [e.seq for e in events_after(tx, build.id, seq)]
        assert found == list(range(max(seq, 0) + 1, last + 1))
    assert scene.kinds(other.id) == ["queued"]


def test_open_phases_are_those_of_the_attempt_innermost_first(scene: Scene) -> None:
    build, at = scene.running(), scene.clock()

    def phase(number: int) -> ev.PhaseStarted:
        return ev.PhaseStarted(at=at, phase=ev.Phase(id=number, parent=None, name="same name", steps=None))

    closed = ev.PhaseFinished(at=at, phase=ev.PhaseId(id=2), elapsed_s=1.0)
    with scene.parts.database.write() as tx:
        builds.append(tx, build.id, 1, [phase(1), phase(2), phase(3), closed])
        assert events.open_phases(tx, build.id, 1) == [3, 1]
        assert events.open_phases(tx, build.id, 2) == []
        builds.settle(tx, build.id, 1, "queued", [ev.Requeued(at=at, reason="test")])
    again = scene.claim(build.id)
    with scene.parts.database.write() as tx:
        builds.append(tx, build.id, again.attempt, [phase(1)])
        assert events.open_phases(tx, build.id, 2) == [1]


def test_a_request_ends_once(scene: Scene) -> None:
    asked = scene.submit().request_id
    with scene.parts.database.write() as tx:
        assert requests.end(tx, asked, "withdrawn", scene.clock())
        assert not requests.end(tx, asked, "failed", scene.clock())
    assert scene.request(asked).state == "withdrawn"

"""What is shown while a build runs: a tree on a terminal, lines in a pipe. Words of the builder stay words."""

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from tests.client.wire import DIGEST, FAILURE, TARGET
from trtforge.cli.progress import nested, screen
from trtforge.cli.text import byte_count, plain, seconds, size
from trtforge.contract.events import Event, read_event
from trtforge.contract.progress import OpenPhase, Picture

AT = datetime.now(UTC) - timedelta(seconds=3)
HOSTILE = "[red]name[/red]\x1b[2J\r\n\u202egnp\x9b1m"
ESCAPES = re.compile(r"\x1b\[2J|\x9b|\u202e|\r")


def event(kind: str, seq: int | None = None, **fields: Any) -> Event:
    numbered = {} if seq is None else {"seq": seq, "at": AT.isoformat(), "attempt": 1}
    read = read_event({"type": kind} | numbered | fields)
    assert read
    return read


def phase(seq: int, number: int, parent: int | None, name: str, steps: int | None) -> Event:
    return event("phase_started", seq, phase={"id": number, "parent": parent, "name": name, "steps": steps})


STORY = [
    event("queued", 1),
    event("started", 2, worker="w1"),
    event("stage", 3, stage="build"),
    phase(4, 1, None, "outer", 4),
    phase(5, 2, 1, HOSTILE, None),
    event("phase_progress", phase={"id": 1, "step": 2}),
    event("phase_progress", phase={"id": 2, "step": 8}),
    event("heartbeat", elapsed_s=12.0, silent_s=10.2, activity="working", cpu_s=11.0, rss_bytes=900 << 20),
    event("log", 6, level="warning", text=f"careful {HOSTILE}"),
]


def snapshot(seq: int, phases: list[dict[str, Any]]) -> Event:
    spec = {"profiles": [], "precision": "as_is", "optimization_level": 3, "workspace_bytes": 1}
    progress = {"elapsed_s": 1, "silent_s": 0, "activity": None, "cpu_s": None, "rss_bytes": None, "phases": phases}
    build = {
        "id": "b", "state": "running", "stage": "build", "engine_key": DIGEST, "model": DIGEST, "target": TARGET,
        "spec": {"requested": {}, "effective": spec}, "attempt": 1, "requests": 1, "priority": 0, "labels": {},
        "queue_position": None, "waiting_for": None, "created_at": AT.isoformat(), "started_at": AT.isoformat(),
        "finished_at": None, "progress": progress, "cancel": None, "failure": None, "engine": None,
    }  # fmt: skip
    return event("snapshot", seq=None, build=build) if seq is None else read(seq, build)


def read(seq: int, build: dict[str, Any]) -> Event:
    found = read_event({"type": "snapshot", "seq": seq, "build": build})
    assert found
    return found


def test_in_a_pipe_every_stored_event_is_a_line(capsys: pytest.CaptureFixture[str]):
    with screen(Console(), "b", as_json=False) as shown:
        for one in [*STORY, event("phase_finished", 7, phase={"id": 2}, elapsed_s=1.25)]:
            shown.show(one)
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"^\d\d:\d\d:\d\d  ", "", line) for line in lines] == [
        "queued",
        "started on w1, attempt 1",
        "stage build",
        "phase started: outer (4 steps)",
        f"  phase started: {plain(HOSTILE)}",
        "          … silent 10 s, working",
        f"warning: careful {plain(HOSTILE)}",
        f"  phase finished: {plain(HOSTILE)} (1.2 s)",
    ]


def test_a_replay_behind_a_snapshot_still_knows_the_names(capsys: pytest.CaptureFixture[str]):
    with screen(Console(), "b", as_json=False) as shown:
        for one in [snapshot(9, []), *STORY, event("phase_finished", 7, phase={"id": 1}, elapsed_s=1.0)]:
            shown.show(one)
    assert "phase finished: outer" in capsys.readouterr().out


def drawn(events: list[Event], height: int = 30) -> str:
    """Return all that reaches a terminal."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=110, height=height, markup=False, highlight=False)
    with screen(console, "b[/]", as_json=False) as shown:
        for one in events:
            shown.show(one)
    return file.getvalue()


def test_on_a_terminal_phases_nest_and_count():
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn(STORY))
    last = shown[shown.rindex("build b[/]") :]
    assert "running · build · 12.0 s" in last
    assert "silent 10.2 s, working · cpu 11.0 s · 900.0 MiB" in last
    assert re.search(r"^  └ outer .*3 of 4 +\d", last, re.MULTILINE)
    assert re.search(r"^    └ \[red\]name\[/red\].* 9 steps", last, re.MULTILINE)
    assert "warning: careful [red]name[/red]" in shown


def test_nothing_of_the_builder_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]):
    story = [*STORY, event("failed", 8, failure=FAILURE | {"message": HOSTILE})]
    with screen(Console(), "b", as_json=False) as shown:
        for one in story:
            shown.show(one)
    assert not ESCAPES.search(capsys.readouterr().out)
    assert not re.search(r"\x1b\[2J|\x9b|\u202e", drawn(story))


def test_more_phases_than_the_terminal_is_high_are_counted():
    many = [phase(10 + n, 10 + n, None, f"p{n}", None) for n in range(30)]
    assert "… and 22 more" in drawn([*STORY[:4], *many], height=13)


def test_json_is_what_came(capsys: pytest.CaptureFixture[str]):
    with screen(Console(), "b", as_json=True) as shown:
        for one in STORY:
            shown.show(one)
    assert [read_event(line) for line in capsys.readouterr().out.splitlines()] == STORY


def test_phases_with_a_lost_parent_are_roots_and_circles_do_not_hang():
    def one(number: int, parent: int | None) -> OpenPhase:
        return OpenPhase(number, parent, str(number), None, None, AT)

    phases = {p.id: p for p in (one(1, None), one(2, 9), one(3, 1), one(4, 3), one(5, 1), one(6, 6))}
    assert [(d, p.id) for d, p in nested(Picture(phases=phases))] == [(0, 1), (1, 3), (2, 4), (1, 5), (0, 2)]


def test_numbers_for_people():
    assert [size(n) for n in (None, 0, 1023, 1 << 20, 3 << 29)] == ["?", "0 B", "1023 B", "1.0 MiB", "1.5 GiB"]
    assert [seconds(n) for n in (None, 0.04, 59.94, 61, 3700)] == ["?", "0.0 s", "59.9 s", "1 min 1 s", "1 h 1 min"]
    assert [byte_count(w) for w in ("1GiB", "512 MiB", "1000", "1.5kb", "2G")] == [
        1 << 30,
        512 << 20,
        1000,
        1500,
        2 << 30,
    ]


def test_a_heartbeat_tells_what_is_left_and_by_what(capsys: pytest.CaptureFixture[str]):
    estimate = {"total_s": [12, 20], "remaining_s": [10.2, 13.8], "basis": f"5 builds {HOSTILE}"}
    beat = event(
        "heartbeat", elapsed_s=2.0, silent_s=1.0, activity="working", cpu_s=1.0, rss_bytes=1, estimate=estimate
    )
    assert "about 10–14 s left, from 5 builds [red]name[/red]" in flat(drawn([*STORY, beat]))
    with screen(Console(), "b", as_json=False) as shown:
        shown.show(beat)
        shown.show(STORY[7])
    with_estimate, without = capsys.readouterr().out.splitlines()
    assert with_estimate == f"          … silent 1 s, working, about 10–14 s left, from 5 builds {plain(HOSTILE)}"
    assert "left" not in without


def test_an_estimate_that_is_over_is_not_shown():
    over = {"total_s": [2, 2], "remaining_s": [0, 0], "basis": "1 build"}
    beat = event("heartbeat", elapsed_s=2.0, silent_s=0, activity=None, cpu_s=None, rss_bytes=None, estimate=over)
    assert "left" not in drawn([*STORY, beat])


def test_stalled_is_said_until_a_sign_of_life(capsys: pytest.CaptureFixture[str]):
    stalled = event("stalled", silent_s=31.0)
    assert "running · build · stalled" in flat(drawn([*STORY, stalled]))
    after = flat(drawn([*STORY, stalled, event("phase_progress", phase={"id": 1, "step": 3})]))
    assert "stalled" not in after[after.rindex("build b[/]") :]
    with screen(Console(), "b", as_json=False) as shown:
        shown.show(stalled)
    assert capsys.readouterr().out == "          … stalled: silent 31 s, and the builder computes nothing\n"


def flat(drawing: str) -> str:
    """Return what a terminal shows of the last drawing, on one line."""
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawing)
    return re.sub(r"\s+", " ", shown[shown.rindex("build b[/]") :])

"""A server that stops in the middle of publish and comes back late, on one Postgres and one store with another."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Server
from tests.system.api import Api, Json
from tests.system.halting import Halting
from tests.system.models import relus
from tests.system.soundness import assert_sound, eventually, files

LEASE = 3  # seconds


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Halting, Server]]:
    """Two servers as on two hosts: device locks of their own, everything else in common."""
    data = tmp_path / "data"
    common = {"database_url": postgres_url, "slots": "1", "lease_s": str(LEASE)}
    late, other = Halting(data, **common), Server(data, **common, lock_dir=str(tmp_path / "other-locks"))
    other.log = tmp_path / "other.log"
    late.start()
    yield late, other
    for server in (late, other):
        if server.process and server.process.poll() is None:
            server.process.send_signal(signal.SIGCONT)
            server.kill()


def paused(late: Halting, point: str) -> Json:
    """Return the submitted build whose server now stands still at `point` of publish, or while its child builds."""
    api = Api(late)
    if point == "building":
        submitted = api.submit(api.upload(relus(1200)))
        api.building(submitted["build"]["id"])
        os.kill(late.pid, signal.SIGSTOP)
    else:
        digest = api.upload(relus())
        late.arm(point, "SIGSTOP")
        submitted = api.submit(digest)
    assert os.waitid(os.P_PID, late.pid, os.WSTOPPED)
    return submitted


def said(server: Server, word: str) -> Callable[[], bool]:
    return lambda: f'"{word}"' in server.log.read_text()


def test_while_a_paused_attempt_holds_its_lock_nobody_takes_its_build(pair: tuple[Halting, Server]) -> None:
    late, other = pair
    submitted = paused(late, "plan_kept")
    other.start()
    api, build_id = Api(other), submitted["build"]["id"]
    api.ended(api.start(relus()))  # it works, only not on that
    build = api.until(build_id, lambda b: b["state"] == "running", 1)
    assert (build["attempt"], build["stage"]) == (1, "publish")
    assert not said(other, "build_taken_back")()

    os.kill(late.pid, signal.SIGCONT)
    ended = api.ended(build_id)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
    assert not said(late, "lease_lost")()
    assert_sound(other)


@pytest.mark.parametrize(
    ("point", "attempts"),
    [
        ("building", 2),
        ("entering", 2),
        ("hashing", 2),
        ("plan_kept", 2),
        ("manifest_staged", 2),
        ("manifest_kept", 1),
        ("concluding", 1),
    ],
)
def test_an_attempt_that_comes_back_after_its_build_was_taken_changes_nothing(
    point: str, attempts: int, pair: tuple[Halting, Server]
) -> None:
    late, other = pair
    build_id = paused(late, point)["build"]["id"]
    for lock in files(late.data / "store" / "locks"):
        lock.unlink()  # as a disk of the net that forgot the locks of a host it lost
    other.start()
    api = Api(other)
    ended = api.ended(build_id)
    assert (ended["state"], ended["attempt"]) == ("succeeded", attempts)
    events = api.events(build_id)
    served = api.get(f"/v1/engines/{ended['engine_key']}")

    os.kill(late.pid, signal.SIGCONT)
    eventually(said(late, "attempt_ended"), 30, "the late attempt goes on")
    assert said(late, "lease_lost")()
    assert api.build(build_id) == ended
    assert api.events(build_id) == events
    assert api.get(f"/v1/engines/{ended['engine_key']}") == served
    assert api.ended(Api(late).start(relus()))["state"] == "succeeded"  # the late one works on
    assert_sound(other)
    assert "Traceback" not in late.log.read_text()

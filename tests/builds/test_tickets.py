"""Tickets: one stream, soon or never, again and again until the build's end, and no longer than their token."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.builds.conclude import Conclusion
from app.builds.parts import Caller
from app.builds.tickets import AFTER_END, CONNECT, admit, issue
from app.builds.tokens import create, revoke
from app.errors import Refused
from tests.scene import ANN, Scene, opened, why
from trtforge.contract.tokens import TokenAsk


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(database_url, tmp_path) as one:
        yield one


def opens(scene: Scene, build_id: str, ticket: str) -> bool:
    try:
        admit(scene.parts, build_id, ticket)
    except Refused as refused:
        return refused.code != "unauthorized"
    return True


def rows(scene: Scene) -> list[str]:
    with scene.parts.database.read() as tx:
        return [str(row) for row in tx.exec_driver_sql("select * from tickets").all()]


def test_it_opens_one_stream_until_the_build_has_ended(scene: Scene):
    build, other = scene.running(1), scene.running(2)
    ticket = issue(scene.parts, build.id, ANN).ticket
    assert opens(scene, build.id, ticket)
    assert not opens(scene, other.id, ticket)
    assert not opens(scene, build.id, ticket + "x")
    scene.clock.turn(CONNECT.total_seconds() * 100)
    assert opens(scene, build.id, ticket)  # a reader that comes back, in another process too
    assert opens(scene.reopened(), build.id, ticket)
    Conclusion(scene.parts, scene.build(build.id)).fail(why())
    scene.clock.turn(AFTER_END.total_seconds() - 1)
    assert opens(scene, build.id, ticket)
    scene.clock.turn(2)
    assert not opens(scene, build.id, ticket)


def test_unused_it_is_worth_nothing_after_a_minute(scene: Scene):
    build = scene.running(1)
    ticket = issue(scene.parts, build.id, ANN).ticket
    scene.clock.turn(CONNECT.total_seconds() - 1)
    late = issue(scene.parts, build.id, ANN).ticket
    scene.clock.turn(1)
    assert not opens(scene, build.id, ticket)
    assert opens(scene, build.id, late)
    scene.clock.turn(1)
    issue(scene.parts, build.id, ANN)
    assert len(rows(scene)) == 2  # the late one, which is in use, and the new one
    assert late not in "".join(rows(scene))


def test_the_stream_of_an_ended_build_can_be_read_too(scene: Scene):
    build = scene.running(1)
    Conclusion(scene.parts, build).fail(why())
    scene.clock.turn(AFTER_END.total_seconds() * 2)
    ticket = issue(scene.parts, build.id, ANN).ticket
    for _ in range(2):  # everything, and then the 204 that tells an EventSource to stop
        assert opens(scene, build.id, ticket)
        scene.clock.turn(AFTER_END.total_seconds() / 2)
    scene.clock.turn(1)
    assert not opens(scene, build.id, ticket)


def test_it_ends_with_the_token_that_asked_for_it(scene: Scene):
    build = scene.running(1)
    revoked, short = (create(scene.parts, TokenAsk(name="x", expires_in_s=s)) for s in (None, 30))
    callers = [Caller(token.id, admin=False, anonymous=False) for token in (revoked, short)]
    tickets = [issue(scene.parts, build.id, caller).ticket for caller in callers]
    assert all(opens(scene, build.id, ticket) for ticket in tickets)
    revoke(scene.parts, revoked.id)
    assert [opens(scene, build.id, ticket) for ticket in tickets] == [False, True]
    scene.clock.turn(30)
    assert not opens(scene, build.id, tickets[1])


def test_there_is_none_for_a_build_that_is_none(scene: Scene):
    with pytest.raises(Refused, match="not_found"):
        issue(scene.parts, "bld_none", ANN)

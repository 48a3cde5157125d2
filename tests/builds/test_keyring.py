"""Tokens in memory: what is known without a look, how soon a change counts, and that guesses cost nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import event

from app.builds.keyring import APART_S, USED_EVERY, Keyring
from app.builds.tokens import create, revoke
from app.db import tokens
from app.errors import Refused
from tests.scene import Scene, opened
from trtforge.contract.tokens import Scope, Token, TokenAsk

FIRST = "the-first-token-of-the-tests"


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(database_url, tmp_path, admin_token=SecretStr(FIRST)) as one:
        yield one


def bearer(secret: str) -> str:
    return f"Bearer {secret}"


def statements(scene: Scene) -> list[str]:
    seen: list[str] = []
    event.listen(scene.parts.database.pool, "before_cursor_execute", lambda *args: seen.append(args[2]))
    return seen


async def refused(asking: Awaitable[object]) -> str:
    with pytest.raises(Refused) as caught:
        await asking
    return caught.value.code


def stored(scene: Scene, token_id: str) -> Token:
    with scene.parts.database.read() as tx:
        return next(t for t in tokens.page(tx, 10, None) if t.id == token_id)


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # pytest-timeout ends it
        await asyncio.sleep(0.02)


def test_a_token_is_known_and_only_its_digest_is_kept(scene: Scene):
    made = create(scene.parts, TokenAsk(name="ci", scope="build"))

    async def ask() -> None:
        keyring = Keyring(scene.parts)
        known = await keyring.identify(bearer(made.secret))
        assert (known.caller.name, known.scope, known.caller.admin) == (made.id, "build", False)
        assert (await keyring.identify(bearer(FIRST))).caller.admin
        for wrong in (made.secret[:-1], made.secret + "x", made.prefix, made.secret.upper(), "x", "", "ü", FIRST[:-1]):
            assert await refused(keyring.identify(bearer(wrong))) == "unauthorized", wrong
        assert await refused(keyring.identify(made.secret)) == "unauthorized"

    asyncio.run(ask())
    with scene.parts.database.read() as tx:
        [row] = tx.exec_driver_sql("select * from tokens").all()
    assert made.secret not in map(str, row)
    assert made.secret.startswith(made.prefix)


def test_who_was_seen_costs_no_look(scene: Scene):
    made = create(scene.parts, TokenAsk(name="ci", scope="read"))

    async def ask() -> None:
        keyring = Keyring(scene.parts, fresh_s=1000)
        await keyring.identify(bearer(made.secret))
        await until(lambda: not keyring._notes)
        seen = statements(scene)
        for _ in range(100):
            assert keyring.at_once(bearer(made.secret))
            assert await keyring.identify(bearer(FIRST))
            assert await refused(keyring.identify(bearer("not one of ours"))) == "unauthorized"
        assert seen == []

    asyncio.run(ask())


def test_guesses_share_their_looks(scene: Scene):
    async def ask() -> None:
        keyring = Keyring(scene.parts, fresh_s=1000)
        await refused(keyring.identify(bearer("trtf_0123456789_guess")))
        seen = statements(scene)
        began = asyncio.get_running_loop().time()
        guesses = (keyring.identify(bearer(f"trtf_0123456789_{n}")) for n in range(200))
        assert {await refused(g) for g in [asyncio.ensure_future(g) for g in guesses]} == {"unauthorized"}
        took = asyncio.get_running_loop().time() - began
        looks = sum("tokens" in s for s in seen)
        assert 1 <= looks <= 2 + took / APART_S

    asyncio.run(ask())


def test_made_and_revoked_elsewhere_counts_soon_and_here_at_once(scene: Scene):
    async def ask() -> None:
        here, there = Keyring(scene.parts, fresh_s=1000), Keyring(scene.parts, fresh_s=0.3)
        await refused(here.identify(bearer("trtf_0123456789_x")))
        made = create(scene.parts, TokenAsk(name="late"))  # by another process: nobody told this one
        assert (await here.identify(bearer(made.secret))).caller.name == made.id
        assert await there.identify(bearer(made.secret))
        revoke(scene.parts, made.id)
        here.changed()
        assert here.at_once(bearer(made.secret)) is None
        assert await refused(here.identify(bearer(made.secret))) == "unauthorized"
        await until(lambda: there.at_once(bearer(made.secret)) is None)
        assert await refused(there.identify(bearer(made.secret))) == "unauthorized"

    asyncio.run(ask())
    [token] = [t for t in [stored(scene, t.id) for t in _all(scene)] if t.name == "late"]
    first = token.revoked_at
    scene.clock.turn(60)
    revoke(scene.parts, token.id)
    assert stored(scene, token.id).revoked_at == first
    with pytest.raises(Refused, match="not_found"):
        revoke(scene.parts, "tok_none")


def _all(scene: Scene) -> list[Token]:
    with scene.parts.database.read() as tx:
        return tokens.page(tx, 10, None)


def test_a_token_ends_at_its_time(scene: Scene):
    made = create(scene.parts, TokenAsk(name="short", expires_in_s=60))

    async def ask() -> None:
        keyring = Keyring(scene.parts, fresh_s=1000)
        scene.clock.turn(59)
        assert await keyring.identify(bearer(made.secret))
        scene.clock.turn(1)
        assert keyring.at_once(bearer(made.secret)) is None
        assert await refused(keyring.identify(bearer(made.secret))) == "unauthorized"

    asyncio.run(ask())


def test_uses_are_noted_but_seldom(scene: Scene):
    made = create(scene.parts, TokenAsk(name="ci"))

    async def ask() -> None:
        keyring = Keyring(scene.parts, fresh_s=1000)
        await keyring.identify(bearer(made.secret))
        await until(lambda: stored(scene, made.id).last_used_at)
        first = stored(scene, made.id).last_used_at
        assert first == scene.clock.at
        for _ in range(3):
            scene.clock.turn(USED_EVERY.total_seconds() / 4)
            assert await keyring.identify(bearer(made.secret))
        await until(lambda: not keyring._notes)
        assert stored(scene, made.id).last_used_at == first
        scene.clock.turn(USED_EVERY.total_seconds())
        assert await keyring.identify(bearer(made.secret))
        await until(lambda: stored(scene, made.id).last_used_at == scene.clock.at)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("scope", "may"), [("read", ("read",)), ("build", ("read", "build")), ("admin", ("read", "build", "admin"))]
)
def test_scopes_include_those_before_them(scene: Scene, scope: Scope, may: tuple[Scope, ...]):
    made = create(scene.parts, TokenAsk(name="x", scope=scope))

    async def ask() -> None:
        known = await Keyring(scene.parts).identify(bearer(made.secret))
        needs: tuple[Scope, ...] = ("read", "build", "admin")
        for needed in needs:
            if needed in may:
                assert known.may(needed).admin == (scope == "admin")
            else:
                with pytest.raises(Refused, match=f"scope {needed}; this one has scope {scope}"):
                    known.may(needed)

    asyncio.run(ask())

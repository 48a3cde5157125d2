"""Who asks: tokens in memory, so that knowing a caller costs no look into the database."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from hmac import compare_digest
from time import monotonic

import structlog

from app.builds.parts import Caller, Parts, in_thread
from app.db import tokens
from app.domain.tokens import MARK, digest_of, includes, prefix_of
from app.errors import Busy, Refused
from trtforge.contract.tokens import Scope, Token

FRESH_S = 5.0  # seconds until a token that another process revoked is worth nothing here either
APART_S = 0.2  # seconds between two looks for tokens that are unknown here: guesses must not load the database
USED_EVERY = timedelta(minutes=1)  # between two notes of a token's use: each waits for the disk

log = structlog.get_logger()


@dataclass(frozen=True)
class Known:
    """A caller, and what they may do."""

    caller: Caller
    scope: Scope

    def may(self, needed: Scope) -> Caller:
        """Return the caller. Raises `Refused`: forbidden, which names the scope."""
        if not includes(self.scope, needed):
            raise Refused("forbidden", f"This needs a token with scope {needed}; this one has scope {self.scope}.")
        return self.caller


@dataclass(frozen=True)
class _Kept:
    digest: str
    expires_at: datetime | None
    known: Known


ANYONE = Known(Caller("anonymous", admin=True, anonymous=True), "admin")  # on loopback without an admin token
FIRST = Known(Caller("admin", admin=True, anonymous=False), "admin")  # whoever has TRTFORGE_ADMIN_TOKEN


class Keyring:
    """Every valid token, read again when older than `fresh_s` seconds. Used on the event loop only."""

    def __init__(self, parts: Parts, fresh_s: float = FRESH_S) -> None:
        self._parts, self._fresh_s = parts, fresh_s
        first = parts.settings.admin_token
        self._first = digest_of(first.get_secret_value()) if first else None
        self._tokens: dict[str, _Kept] = {}  # by prefix
        self._read_at = self._changed_at = float("-inf")
        self._one_read = asyncio.Lock()
        self._used: dict[str, datetime | None] = {}  # by id: the last use that was noted
        self._notes: set[asyncio.Future[None]] = set()

    async def identify(self, authorization: str) -> Known:
        """Return who sends this header. Raises `Refused` (unauthorized) and `Busy`."""
        if known := self.at_once(authorization):
            return known
        came = monotonic()
        if (given := _bearer(authorization)) and given.startswith(MARK):
            if not self._fresh(came):
                await self._read(max(came - self._fresh_s, self._changed_at))
            if (known := self.at_once(authorization)) is None:  # made elsewhere, a moment ago?
                await self._read(came)
                known = self.at_once(authorization)
            if known:
                return known
        raise Refused("unauthorized")

    def at_once(self, authorization: str) -> Known | None:
        """Return who sends this header if memory knows; None: it does not, or it is nobody."""
        if self._first is None:
            return ANYONE
        given = _bearer(authorization)
        if given is None:
            return None
        digest = digest_of(given)
        if compare_digest(digest, self._first):
            return FIRST
        kept = self._tokens.get(prefix_of(given))
        if kept is None or not compare_digest(digest, kept.digest) or not self._fresh(monotonic()):
            return None
        now = self._parts.now()
        if kept.expires_at and kept.expires_at <= now:
            return None
        self._note(kept.known.caller.name, now)
        return kept.known

    @property
    def guarded(self) -> bool:
        """Whether a token is asked for at all."""
        return self._first is not None

    def changed(self) -> None:
        """Believe nothing that was read before now: a token was made or revoked here."""
        self._changed_at = monotonic()

    def _fresh(self, now: float) -> bool:
        return self._read_at > self._changed_at and now - self._read_at < self._fresh_s

    async def _read(self, since: float) -> None:
        """Have what the database says at `since` or later; many who ask at once share a look."""
        async with self._one_read:
            if self._read_at > since:
                return
            await asyncio.sleep(max(0.0, self._read_at + APART_S - monotonic()))
            began = monotonic()
            found = await in_thread(self._look)
            self._tokens = {t.prefix: _Kept(digest, t.expires_at, _known(t)) for t, digest in found}
            self._used = {
                t.id: max(filter(None, (t.last_used_at, self._used.get(t.id))), default=None) for t, _ in found
            }
            self._read_at = began

    def _look(self) -> list[tuple[Token, str]]:
        with self._parts.database.read() as tx:
            return tokens.valid(tx, self._parts.now())

    def _note(self, token_id: str, now: datetime) -> None:
        """Note a use, in a thread of its own time: nobody waits for it."""
        last = self._used.get(token_id)
        if last is None or now - last >= USED_EVERY:
            self._used[token_id] = now
            note = asyncio.get_running_loop().run_in_executor(None, self._write_use, token_id, now)
            self._notes.add(note)
            note.add_done_callback(self._notes.discard)

    def _write_use(self, token_id: str, now: datetime) -> None:
        try:
            with self._parts.database.write() as tx:
                tokens.used(tx, token_id, now)
        except Busy as error:  # the next note will say it
            log.debug("token_use_not_noted", reason=str(error))


def _known(token: Token) -> Known:
    return Known(Caller(token.id, admin=token.scope == "admin", anonymous=False), token.scope)


def _bearer(authorization: str) -> str | None:
    scheme, _, given = authorization.partition(" ")
    return given.strip() or None if scheme.lower() == "bearer" else None

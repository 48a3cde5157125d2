"""Tokens: who may do what. A service keeps only their digests; the secret is in one answer and nowhere else."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trtforge.contract.base import Asked, Instant, Wire

Scope = Literal["read", "build", "admin"]  # each may do what those before it may

TokenName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]


class TokenAsk(Asked):
    """Body of `POST /v1/tokens`. `expires_in_s`: seconds from now, at most ten years; None: until it is revoked."""

    name: TokenName
    scope: Scope = "build"
    expires_in_s: Annotated[float, Field(gt=0, le=10 * 366 * 86400)] | None = None


class Token(Wire):
    """A token without its secret. `prefix` is how the secret begins; `last_used_at` is right to the minute."""

    id: str
    name: str
    prefix: str
    scope: Scope
    created_at: Instant
    last_used_at: Instant | None
    expires_at: Instant | None
    revoked_at: Instant | None


class NewToken(Token):
    """Answer of `POST /v1/tokens`, the only one that has the secret."""

    secret: str


class TokenPage(Wire):
    items: tuple[Token, ...]
    next_cursor: str | None


class Ticket(Wire):
    """Answer of `POST /v1/builds/{id}/ticket`: `url` is the build's stream with the ticket, for an EventSource.

    It connects before `connect_by`; from then on it works again and again until a minute after the build's end.
    """

    ticket: str
    url: str
    connect_by: Instant

"""Secrets: how one is made and what is kept of it; and which scope includes which."""

import hashlib
import secrets
from typing import NamedTuple, get_args

from trtforge.contract.tokens import Scope

MARK = "trtf_"  # scanners for leaked secrets look for a mark
PREFIX = len(MARK) + 10
_ORDER: tuple[Scope, ...] = get_args(Scope)


class Secret(NamedTuple):
    text: str
    prefix: str  # no secret: it is in lists, and finds the row
    digest: str


def new_secret() -> Secret:
    """Return a secret of 256 random bits behind a prefix of its own."""
    prefix = MARK + secrets.token_hex(5)
    text = f"{prefix}_{secrets.token_urlsafe(32)}"
    return Secret(text, prefix, digest_of(text))


def prefix_of(text: str) -> str:
    return text[:PREFIX]


def digest_of(text: str) -> str:
    """Return what is kept of a secret. It is long and random, so a slow hash would add nothing."""
    return hashlib.sha256(text.encode()).hexdigest()


def includes(scope: Scope, needed: Scope) -> bool:
    return _ORDER.index(scope) >= _ORDER.index(needed)

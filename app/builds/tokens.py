"""Make and revoke tokens."""

from datetime import timedelta

from app.builds.parts import Parts
from app.db import tokens
from app.domain.ids import new_id
from app.domain.tokens import new_secret
from app.errors import Refused
from trtforge.contract.tokens import NewToken, Token, TokenAsk


def create(parts: Parts, asked: TokenAsk) -> NewToken:
    """Make a token; its secret is in the answer and nowhere else."""
    secret, now = new_secret(), parts.now()
    token = Token(
        id=new_id("tok"),
        name=asked.name,
        prefix=secret.prefix,
        scope=asked.scope,
        created_at=now,
        last_used_at=None,
        expires_at=now + timedelta(seconds=asked.expires_in_s) if asked.expires_in_s else None,
        revoked_at=None,
    )
    with parts.database.write() as tx:
        tokens.add(tx, token, secret.digest)
    return NewToken(**token.model_dump(), secret=secret.text)


def revoke(parts: Parts, token_id: str) -> None:
    """Let a token be worth nothing from now on; revoked before: nothing changes. Raises `Refused`: not_found."""
    with parts.database.write() as tx:
        if not tokens.revoke(tx, token_id, parts.now()):
            raise Refused("not_found", f"No token {token_id}.")

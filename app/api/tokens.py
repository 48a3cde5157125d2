"""`/v1/tokens`: who may do what."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.preferences import cursor, read_cursor
from app.api.service import Admin, Wired
from app.api.strict import StrictRoute
from app.builds import tokens as made
from app.builds.parts import in_thread
from app.db import tokens
from trtforge.contract.tokens import NewToken, TokenAsk, TokenPage

router = APIRouter(prefix="/v1/tokens", tags=["tokens"], route_class=StrictRoute)


@router.post("", status_code=201)
async def post_token(asked: TokenAsk, wired: Wired, _: Admin) -> NewToken:
    """Make a token. Its secret is in this answer and nowhere else."""
    token = await in_thread(lambda: made.create(wired.parts, asked))
    wired.keyring.changed()
    return token


@router.get("")
def list_tokens(
    wired: Wired,
    _: Admin,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor_: Annotated[str | None, Query(alias="cursor")] = None,
) -> TokenPage:
    """Return tokens without their secrets, newest first; revoked and expired ones too."""
    with wired.parts.database.read() as tx:
        found = tokens.page(tx, limit + 1, read_cursor(cursor_))
    items = tuple(found[:limit])
    more = cursor(items[-1].created_at, items[-1].id) if len(found) > limit else None
    return TokenPage(items=items, next_cursor=more)


@router.delete("/{token_id}", status_code=204)
async def delete_token(token_id: str, wired: Wired, _: Admin) -> None:
    """Revoke a token: at once in this process, within seconds in every other one."""
    await in_thread(lambda: made.revoke(wired.parts, token_id))
    wired.keyring.changed()

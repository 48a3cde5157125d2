"""`/v1/builds`: submit, look, list, stop."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.responses import PlainTextResponse

from app.api.document import refusals
from app.api.preferences import IdempotencyKey, Wait, cursor, read_cursor
from app.api.service import Asking, Service, Wired
from app.api.strict import StrictRoute
from app.api.submitted import told
from app.builds import stopping
from app.builds.nearest import with_nearest
from app.builds.parts import in_thread
from app.builds.submit import answer_again, submit
from app.builds.views import build_view, find_build
from app.db import builds
from app.db.builds import BuildFilter
from app.errors import Refused
from trtforge.contract.base import Digest
from trtforge.contract.builds import TERMINAL, Build, BuildPage, Reason, State, Submit, Submitted

router = APIRouter(prefix="/v1/builds", tags=["builds"], route_class=StrictRoute)


@router.post(
    "",
    status_code=201,
    responses={
        200: {"model": Submitted, "description": "joined, cached, known_failure"},
        **refusals("quarantined", "too_many"),
    },
)
async def post_build(
    asked: Submit,
    request: Request,
    response: Response,
    wired: Wired,
    caller: Asking,
    wait: Wait,
    idempotency_key: IdempotencyKey = None,
) -> Submitted:
    """Ask for an engine. `Prefer: wait=N` answers when the build ends or N seconds have passed."""
    body = await request.body()
    answer = await in_thread(lambda: submit(wired.parts, asked, caller, idempotency_key, body))
    if wait:
        await wired.feeds.until_answered(answer.request_id, wait)
        answer = await in_thread(lambda: _again(wired, answer.request_id))
    return told(response, answer)


def _again(wired: Service, request_id: str) -> Submitted:
    with wired.parts.database.read() as tx:
        answer = answer_again(tx, wired.parts, request_id)
    return with_nearest(wired.parts, answer)


@router.get("")
def list_builds(
    wired: Wired,
    _: Asking,
    state: State | None = None,
    model: Digest | None = None,
    engine_key: Digest | None = None,
    label: Annotated[str | None, Query(description="`key=value`", pattern=r"^[^=\x00]+=[^\x00]*$")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor_: Annotated[str | None, Query(alias="cursor")] = None,
) -> BuildPage:
    """Return builds, newest first."""
    key, _equals, value = (label or "").partition("=")
    wanted = BuildFilter(state, model, engine_key, (key, value) if label else None)
    with wired.parts.database.read() as tx:
        rows = builds.page(tx, wanted, limit + 1, read_cursor(cursor_))
        items = tuple(build_view(tx, wired.parts, row) for row in rows[:limit])
    more = cursor(items[-1].created_at, items[-1].id) if len(rows) > limit else None
    return BuildPage(items=items, next_cursor=more)


@router.get("/{build_id}")
async def get_build(build_id: str, wired: Wired, _: Asking, wait: Wait) -> Build:
    """Return a build. `Prefer: wait=N` answers when it ends or N seconds have passed."""
    build = await _existing(wired, build_id)
    if wait and build.state not in TERMINAL:
        await wired.feeds.until_ended(build_id, wait)
        build = await _existing(wired, build_id)
    return build


@router.get("/{build_id}/log", response_class=PlainTextResponse)
def get_log(build_id: str, wired: Wired, _: Asking) -> str:
    """Return what the builder wrote, without paths, up to the limit; empty before it started."""
    with wired.parts.database.read() as tx:
        if builds.find(tx, build_id) is None:
            raise Refused("not_found", f"No build {build_id}.")
    return (wired.parts.store.log(build_id) or b"").decode(errors="replace")


@router.delete("/{build_id}", status_code=202, responses=refusals("already_ended", "publishing", "build_shared"))
async def delete_build(
    build_id: str,
    wired: Wired,
    caller: Asking,
    reason: Annotated[Reason | None, Body()] = None,
    force: Annotated[bool, Query(description="Stop it although others wait; needs admin.")] = False,
) -> Build:
    """Ask a build to stop: at once while it is queued, within the grace once it runs."""
    await in_thread(lambda: stopping.cancel(wired.parts, build_id, caller, reason.reason if reason else None, force))
    return await _existing(wired, build_id)


async def _existing(wired: Service, build_id: str) -> Build:
    build = await in_thread(lambda: find_build(wired.parts, build_id))
    if build is None:
        raise Refused("not_found", f"No build {build_id}.")
    return build

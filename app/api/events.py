"""`/v1/builds/{id}/events`: a build as it happens, as server-sent events or NDJSON."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response, Security
from fastapi.responses import StreamingResponse

from app.api.document import refusals
from app.api.service import Reading, Service, Wired, bearer, caller, known
from app.builds import tickets
from app.builds.parts import in_thread
from app.db import builds
from app.errors import Refused
from trtforge.contract.builds import TERMINAL
from trtforge.contract.tokens import Ticket

router = APIRouter(prefix="/v1/builds", tags=["events"])

RETRY = b"retry: 2000\n\n"  # milliseconds an EventSource waits before it comes back
NO_BUFFERING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
NDJSON = "application/x-ndjson"


async def watcher(
    build_id: str,
    wired: Wired,
    request: Request,
    _: Annotated[object, Security(bearer)],
    ticket: Annotated[str | None, Query(max_length=100, description="In place of a token, for an EventSource.")] = None,
) -> None:
    """Let pass who has a ticket for this stream, or a token. Raises `Refused`: unauthorized."""
    if ticket is None or not wired.keyring.guarded:
        await caller(await known(wired, request), request)
    else:
        await in_thread(lambda: tickets.admit(wired.parts, build_id, ticket))


@router.post("/{build_id}/ticket", status_code=201)
async def post_ticket(build_id: str, response: Response, wired: Wired, caller: Reading) -> Ticket:
    """Give a ticket for the stream of this build: to connect within a minute, and to come back until the build's end."""
    response.headers["Cache-Control"] = "no-store"
    return await in_thread(lambda: tickets.issue(wired.parts, build_id, caller))


@router.get(
    "/{build_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}, NDJSON: {}}, "description": "Events until the terminal one."},
        204: {"description": "The build has ended and everything was seen: do not come back."},
        **refusals("too_many"),
    },
)
async def get_events(
    build_id: str,
    wired: Wired,
    _: Annotated[None, Depends(watcher)],
    accept: Annotated[str, Header()] = "*/*",
    last_event_id: Annotated[str | None, Header(description="Send only what comes after this id.")] = None,
    after: Annotated[int | None, Query(ge=0, description="The same for clients that cannot set headers.")] = None,
) -> Response:
    """Follow a build: a snapshot, the stored events after the given id, then what is live."""
    seq = _cursor(last_event_id, after)
    state, last = await in_thread(lambda: _position(wired, build_id))
    if state in TERMINAL and seq >= last:
        return Response(status_code=204)
    wired.feeds.admit()
    lines = NDJSON in accept
    media = NDJSON if lines else "text/event-stream"
    return StreamingResponse(_stream(wired, build_id, seq, lines), headers=NO_BUFFERING, media_type=media)


def _cursor(last_event_id: str | None, after: int | None) -> int:
    """The header wins: an EventSource that reconnects keeps its address and sends the newer id."""
    if last_event_id is None or last_event_id == "":
        return after or 0
    if not last_event_id.isdecimal() or len(last_event_id) > 9:
        raise Refused(
            "invalid_request", "Last-Event-ID is not an id of this stream.", remedy="Send the last id, or none."
        )
    return int(last_event_id)


def _position(wired: Service, build_id: str) -> tuple[str, int]:
    with wired.parts.database.read() as tx:
        row = builds.find(tx, build_id)
    if row is None:
        raise Refused("not_found", f"No build {build_id}.")
    return row.state, row.last_seq


async def _stream(wired: Service, build_id: str, after: int, lines: bool) -> AsyncIterator[bytes]:
    if not lines:
        yield RETRY
    async with aclosing(wired.feeds.watch(build_id, after)) as batches:
        async for batch in batches:
            yield b"".join(e.ndjson if lines else e.sse for e in batch)

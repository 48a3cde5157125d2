"""`/v1/requests`: one client's wish, and leaving it."""

from typing import Annotated

from fastapi import APIRouter, Body

from app.api.document import refusals
from app.api.preferences import Wait
from app.api.service import Asking, Service, Wired
from app.api.strict import StrictRoute
from app.builds import stopping
from app.builds.parts import in_thread
from app.builds.views import find_request
from app.errors import Refused
from trtforge.contract.builds import Reason, Request

router = APIRouter(prefix="/v1/requests", tags=["requests"], route_class=StrictRoute)


@router.get("/{request_id}")
async def get_request(request_id: str, wired: Wired, _: Asking, wait: Wait) -> Request:
    """Return a request. `Prefer: wait=N` answers when it ends or N seconds have passed."""
    request = await _existing(wired, request_id)
    if wait:
        await wired.feeds.until_answered(request_id, wait)
        request = await _existing(wired, request_id)
    return request


@router.delete("/{request_id}", status_code=204, responses=refusals("already_ended"))
async def delete_request(
    request_id: str, wired: Wired, caller: Asking, reason: Annotated[Reason | None, Body()] = None
) -> None:
    """Withdraw one request; the build stops when the last one leaves."""
    why = reason.reason if reason else None
    await in_thread(lambda: stopping.withdraw(wired.parts, request_id, why, caller))


async def _existing(wired: Service, request_id: str) -> Request:
    request = await in_thread(lambda: find_request(wired.parts, request_id))
    if request is None:
        raise Refused("not_found", f"No request {request_id}.")
    return request

"""`/v1/engines/{key}/refit`: an engine with the weights of another model."""

from functools import partial

from fastapi import APIRouter, Request, Response

from app.api.document import refusals
from app.api.models import DigestPath
from app.api.preferences import IdempotencyKey
from app.api.service import Asking, Wired
from app.api.strict import StrictRoute
from app.api.submitted import told
from app.builds.parts import in_thread
from app.builds.refit import refit
from trtforge.contract.builds import Refit, Submitted

router = APIRouter(prefix="/v1/engines", tags=["engines"], route_class=StrictRoute)


@router.post(
    "/{key}/refit",
    status_code=201,
    responses={
        200: {"model": Submitted, "description": "joined, cached, known_failure"},
        **refusals("quarantined", "too_many"),
    },
)
async def post_refit(
    key: DigestPath,
    asked: Refit,
    request: Request,
    response: Response,
    wired: Wired,
    caller: Asking,
    idempotency_key: IdempotencyKey = None,
) -> Submitted:
    """Ask for an engine with the weights of another model of the same graph."""
    work = partial(refit, wired.parts, key, asked, caller, idempotency_key, await request.body())
    return told(response, await in_thread(work))

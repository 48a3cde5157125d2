"""`/v1/files`: files of weights beside a graph, each by its digest, resumable."""

import re
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from app.api.document import RAW, UPLOADS, refusals
from app.api.models import DigestPath, body_of, length_of
from app.api.service import Asking, Wired
from app.api.strict import StrictRoute
from app.builds.files import Span
from app.errors import Refused
from trtforge.contract.models import FileState

router = APIRouter(prefix="/v1/files", tags=["models"], route_class=StrictRoute)

_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")


@router.put(
    "/{digest}",
    status_code=201,
    responses={200: {"model": FileState}, 202: {"model": FileState}, **refusals(*UPLOADS, "upload_offset")},
    openapi_extra=RAW,
)
async def put_file(
    digest: DigestPath,
    request: Request,
    response: Response,
    wired: Wired,
    _: Asking,
    content_range: Annotated[str | None, Header()] = None,
) -> FileState:
    """Upload a file, or with `Content-Range` the next part of one: 201 when it is whole, 202 when more is to come."""
    files = wired.uploads.files
    new = await files.receive(digest, body_of(request), _span(content_range), length_of(request))
    state = await files.state(digest) or FileState(digest=digest, have=0, complete=False)
    response.status_code = 201 if new else 200 if state.complete else 202
    return state


@router.head("/{digest}", status_code=204)
async def head_file(digest: DigestPath, wired: Wired, _: Asking) -> Response:
    """Tell how much of a file is here: `Upload-Offset` in bytes, `Upload-Complete` ?1 or ?0; 404 when nothing is."""
    state = await wired.uploads.files.state(digest)
    if state is None:
        raise Refused("not_found", f"Nothing of {digest} is here.")
    headers = {"Upload-Offset": str(state.have), "Upload-Complete": f"?{int(state.complete)}"}
    return Response(status_code=204, headers=headers)


def _span(header: str | None) -> Span | None:
    if header is None:
        return None
    found = _RANGE.fullmatch(header.strip())
    first, last, size = map(int, found.groups()) if found else (1, 0, 0)
    if not first <= last < size:
        raise Refused("invalid_request", "Content-Range must be `bytes FIRST-LAST/SIZE`, with FIRST ≤ LAST < SIZE.")
    return Span(first, last, size)

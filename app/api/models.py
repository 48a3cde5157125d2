"""`/v1/models`: upload once, look at what the inspection found."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Body, Path, Request, Response
from starlette.requests import ClientDisconnect

from app.api.document import RAW, UPLOADS, Answers, refusals
from app.api.service import Asking, Wired
from app.api.strict import StrictRoute
from app.builds.layout import is_here
from app.db import models
from app.errors import Refused
from trtforge.contract.models import FilesAsk, Model, Preflight, PreflightAsk

SILENT_S = 60.0  # seconds without a byte after which a sender is given up

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=StrictRoute)

HERE: Answers = {200: {"model": Model, "description": "It was here already."}}
DigestPath = Annotated[str, Path(pattern=r"^sha256:[0-9a-f]{64}$", examples=["sha256:" + "0" * 64])]


@router.put("/{digest}", status_code=201, responses=HERE | refusals(*UPLOADS), openapi_extra=RAW)
async def put_model(digest: DigestPath, request: Request, response: Response, wired: Wired, _: Asking) -> Model:
    """Upload one self-contained ONNX file as the raw body; its digest is the file's own."""
    model, new = await wired.uploads.receive(digest, body_of(request), length_of(request))
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/models/{digest}"
    return model


@router.post("", status_code=201, responses=HERE | refusals("files_missing", "store_full"))
async def post_model(asked: FilesAsk, response: Response, wired: Wired, _: Asking) -> Model:
    """Make a model of a graph and the files of its weights, which were uploaded to `/v1/files` before."""
    model, new = await wired.uploads.assemble(asked)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/models/{model.digest}"
    return model


@router.get("/{digest}")
def get_model(digest: DigestPath, wired: Wired, _: Asking) -> Model:
    """Return what the inspection found."""
    with wired.parts.database.read() as tx:
        model = models.find(tx, digest)
    if model is None or not is_here(wired.parts.store, model):
        raise Refused("not_found", f"No model {digest}.")
    return model


@router.post("/{digest}/preflight", responses=refusals("store_full"))
async def post_preflight(
    digest: DigestPath, wired: Wired, _: Asking, asked: Annotated[PreflightAsk | None, Body()] = None
) -> Preflight:
    """Say what a build would fail on, without building: every check, the parser's verdict, the shape doctor."""
    return await wired.uploads.preflight(digest, asked or PreflightAsk())


def length_of(request: Request) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


async def body_of(request: Request, silent_s: float = SILENT_S) -> AsyncIterator[bytes]:
    """Yield a body as it comes. Raises `Refused`: upload_incomplete, when it is cut or nothing comes for too long."""
    coming = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(silent_s):
                chunk = await anext(coming)
        except StopAsyncIteration:
            return
        except ClientDisconnect as error:
            raise Refused("upload_incomplete") from error
        except TimeoutError as error:
            raise Refused("upload_incomplete", f"Nothing came for {silent_s:g} seconds.") from error
        yield chunk

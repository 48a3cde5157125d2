"""Engines as they leave and come: archives, folders for Triton, builds made again."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.api.document import RAW, Answers, refusals
from app.api.models import DigestPath, body_of
from app.api.preferences import IdempotencyKey
from app.api.problems import refused_by
from app.api.service import Admin, Asking, Wired
from app.api.submitted import told
from app.api.tar import TarResponse
from app.builds.exporting import archive, triton_config, triton_folder
from app.builds.importing import Importing
from app.builds.parts import in_thread
from app.builds.rebuild import rebuild
from app.errors import Busy, Refused, StoreFull, StoreUnusable
from trtforge.contract.artifacts import Imported
from trtforge.contract.base import Digest
from trtforge.contract.builds import Submitted

router = APIRouter(prefix="/v1", tags=["engines"])

TAR: Answers = {
    200: {"content": {"application/x-tar": {}}, "description": "The archive, whole."},
    **refusals("engine_corrupt"),
}
Name = Annotated[str | None, Query(description="Triton's name for the model.", max_length=200)]
MOST_LEFT = 64 << 20  # bytes of a refused archive that are read on, so that its sender hears why


@router.get("/export", response_class=Response, responses=TAR | refusals("not_found"))
def get_export(key: Annotated[list[Digest], Query(min_length=1)], wired: Wired, _: Asking) -> Response:
    """Return an archive (tar) of engines: manifest, signature and plan of each; the same bytes for the same engines."""
    return TarResponse(archive(wired.parts, key), "engines.tar")


@router.post(
    "/import",
    responses=refusals("upload_incomplete", "archive_malformed", "engine_busy", "store_full"),
    openapi_extra=RAW,
)
async def post_import(
    request: Request,
    wired: Wired,
    _: Admin,
    allow_unsigned: Annotated[
        bool, Query(description="Take engines that no trusted key signed, where the operator allows it.")
    ] = False,
) -> Imported:
    """Take in an archive of engines, each whole or not at all, if a trusted key signed them."""
    body = body_of(request)
    importing = Importing(wired.parts, allow_unsigned)
    try:
        return await importing.run(body)
    except (Refused, Busy, StoreFull, StoreUnusable) as error:
        refused = refused_by(error)
        refused.extra = {**refused.extra, "imported": [one.engine_key for one in importing.done]}
        left = MOST_LEFT
        if refused.code not in ("archive_truncated", "upload_incomplete"):
            async for piece in body:
                left -= len(piece)
                if left < 0:
                    break
        raise refused from error
    finally:
        for one in importing.done:
            wired.manifests.forget(one.engine_key)


@router.get("/engines/{key}/triton", response_class=Response, responses=TAR)
def get_triton(key: DigestPath, wired: Wired, _: Asking, name: Name = None) -> Response:
    """Return an engine as a folder of a Triton model repository (tar): config.pbtxt and 1/model.plan."""
    known, members = triton_folder(wired.parts, key, name)
    return TarResponse(members, f"{known}.tar")


@router.get(
    "/engines/{key}/triton/config.pbtxt", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def get_triton_config(key: DigestPath, wired: Wired, _: Asking, name: Name = None) -> Response:
    """Return only the configuration; `Model-Name` is the name of the folder it belongs in."""
    known, config = await in_thread(lambda: triton_config(wired.parts, key, name))
    return Response(config, media_type="text/plain; charset=utf-8", headers={"Model-Name": known})


@router.post(
    "/engines/{key}/rebuild",
    status_code=201,
    responses={
        200: {"model": Submitted, "description": "joined"},
        **refusals("quarantined", "too_many", "engine_corrupt"),
    },
)
async def post_rebuild(
    key: DigestPath,
    response: Response,
    wired: Wired,
    caller: Asking,
    idempotency_key: IdempotencyKey = None,
) -> Submitted:
    """Build an engine again from its manifest, only to compare: the build's end tells `rebuild.identical`."""
    return told(response, await in_thread(lambda: rebuild(wired.parts, key, caller, idempotency_key)))

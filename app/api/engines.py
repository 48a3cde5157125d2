"""`/v1/engines` and `/v1/plans`: find, explain and fetch what was built."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.api.document import refusals
from app.api.download import plan_response
from app.api.models import DigestPath
from app.api.preferences import cursor, read_cursor
from app.api.service import Asking, Service, Wired
from app.builds.fetches import note_fetch
from app.builds.views import build_view
from app.db import builds, engines
from app.db.engines import EngineFilter
from app.errors import Refused
from trtforge.contract.base import Digest
from trtforge.contract.builds import Build
from trtforge.contract.engines import EnginePage, Manifest, PlanRef

router = APIRouter(prefix="/v1", tags=["engines"])
open_router = APIRouter(prefix="/v1", tags=["engines"])  # needs no token

RETRY_AFTER = 5  # seconds a probe should wait while the engine is being built
PLAN: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The plan, whole."},
    206: {
        "content": {"application/octet-stream": {}, "multipart/byteranges": {}},
        "description": "The ranges asked for.",
    },
    304: {"description": "The plan has not changed."},
    **refusals("engine_corrupt", "range_not_satisfiable"),
}


@router.get("/engines/{key}", response_model=Manifest)
async def get_engine(key: DigestPath, wired: Wired, _: Asking) -> Response:
    """Return the manifest. One that is in memory never comes here: `app.api.lookup` answers."""
    manifest = await wired.manifests.get(key)
    if manifest is None:
        raise Refused("not_found", f"No engine {key}.")
    return Response(manifest, media_type="application/json")


@router.get("/engines")
def list_engines(
    wired: Wired,
    _: Asking,
    model: Digest | None = None,
    builder: str | None = None,
    gpu: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor_: Annotated[str | None, Query(alias="cursor")] = None,
) -> EnginePage:
    """Return engines, newest first."""
    with wired.parts.database.read() as tx:
        found = engines.page(tx, EngineFilter(model, builder, gpu), limit + 1, read_cursor(cursor_))
    items = tuple(found[:limit])
    more = cursor(items[-1].created_at, items[-1].engine_key) if len(found) > limit else None
    return EnginePage(items=items, next_cursor=more)


@router.get("/engines/{key}/plan", response_class=Response, responses=PLAN)
@router.head("/engines/{key}/plan", response_class=Response, responses=PLAN, operation_id="head_plan")
def get_plan(key: DigestPath, request: Request, wired: Wired, _: Asking) -> Response:
    """Return the plan of an engine; it may differ after the engine was deleted and built again."""
    with wired.parts.database.read() as tx:
        engine = engines.find(tx, key)
    if engine is None:
        raise Refused("not_found", f"No engine {key}.")
    return send_plan(request, wired, engine.plan, immutable=False)


@router.get("/plans/{digest}", response_class=Response, responses=PLAN)
@router.head("/plans/{digest}", response_class=Response, responses=PLAN, operation_id="head_plan_by_digest")
def get_plan_by_digest(digest: DigestPath, request: Request, wired: Wired, _: Asking) -> Response:
    """Return the plan with exactly these bytes."""
    with wired.parts.database.read() as tx:
        plan = engines.plan(tx, digest)
    if plan is None:
        raise Refused("not_found", f"No plan {digest}.")
    return send_plan(request, wired, plan, immutable=True)


def send_plan(request: Request, wired: Service, plan: PlanRef, *, immutable: bool) -> Response:
    """Return the bytes of a plan; a download is noted for retention. Blocks."""
    path = wired.parts.store.open_plan(plan.digest)
    accel = _accel(wired, path)
    sending = partial(wired.parts.sending.of, plan.digest)
    response = plan_response(request, path, plan.digest, plan.size, immutable=immutable, accel=accel, sending=sending)
    if request.method == "GET" and response.status_code in (200, 206):
        note_fetch(wired.parts, plan.digest)
    return response


def _accel(wired: Service, path: Path) -> str | None:
    """Return where nginx finds the plan: its place in the store, below the address that the operator gave it."""
    prefix = wired.parts.settings.accel_prefix
    return f"{prefix}{path.parent.name}/{path.name}" if prefix else None


@open_router.get("/engines/{key}/ready", status_code=204, responses={503: {"description": "It is being built."}})
def engine_ready(key: DigestPath, wired: Wired) -> None:
    """Answer a probe that waits for an engine: 204 there, 503 being built, 404 neither."""
    parts = wired.parts
    with parts.database.read() as tx:
        engine, build = engines.find(tx, key), builds.live(tx, key)
        view = build_view(tx, parts, build) if build else None
    if engine and parts.store.has_plan(engine.plan.digest, engine.plan.size):
        return
    if view is None:
        raise Refused("not_found", f"No engine {key}, and no build for it.")
    raise being_built(view)


def being_built(view: Build) -> Refused:
    """Return the answer to a probe whose engine is on its way, with how far it is."""
    progress = view.progress.model_dump(mode="json") if view.progress else None
    return Refused(
        "unavailable",
        f"The engine is being built: {view.state}" + (f", {view.stage}." if view.stage else "."),
        retry_after=RETRY_AFTER,
        build={"id": view.id, "state": view.state, "stage": view.stage, "progress": progress},
    )

"""`/v1/names`: a stable word for a want, resolved whenever somebody asks."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.engines import PLAN, being_built, send_plan
from app.api.preferences import cursor, read_cursor
from app.api.service import Asking, Wired
from app.builds import naming
from app.builds.views import build_view
from app.db import names
from app.errors import Refused
from trtforge.contract.names import NAME, Name, NameHistory, NamePage, Want
from trtforge.contract.target import TargetSelector

router = APIRouter(prefix="/v1/names", tags=["names"])
open_router = APIRouter(prefix="/v1/names", tags=["names"])  # needs no token

NamePath = Annotated[str, Path(pattern=NAME, examples=["detector"])]


async def machine(
    gpu: str | None = None,
    driver: str | None = None,
    compute_capability: Annotated[str | None, Query(pattern=r"^\d{1,4}\.\d{1,4}$")] = None,
    builder: Annotated[str | None, Query(pattern="^(tensorrt|tensorrt_rtx)$")] = None,
    builder_version: str | None = None,
    cuda: str | None = None,
    mig_profile: str | None = None,
    os: str | None = None,
    arch: str | None = None,
) -> TargetSelector:
    """Return the machine that asks, as far as its query says."""
    said: dict[str, Any] = {"gpu": gpu, "driver": driver, "builder": builder, "builder_version": builder_version}
    said |= {"cuda": cuda, "mig_profile": mig_profile, "os": os, "arch": arch}
    return TargetSelector(**said, compute_capabilities=(compute_capability,) if compute_capability else None)


Machine = Annotated[TargetSelector, Depends(machine)]


@router.get("")
def list_names(
    wired: Wired,
    _: Asking,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor_: Annotated[str | None, Query(alias="cursor")] = None,
) -> NamePage:
    """Return names, newest first."""
    with wired.parts.database.read() as tx:
        found = names.page(tx, limit + 1, read_cursor(cursor_))
    items = tuple(found[:limit])
    more = cursor(items[-1].created_at, items[-1].name) if len(found) > limit else None
    return NamePage(items=items, next_cursor=more)


@router.put("/{name}", status_code=201, responses={200: {"model": Name, "description": "It was there before."}})
def put_name(name: NamePath, want: Want, response: Response, wired: Wired, caller: Asking) -> Name:
    """Let a name stand for a model, spec, target and policy, from this moment on and for everyone."""
    found, new = naming.set_name(wired.parts, name, want, caller)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/names/{name}"
    return found


@router.get("/{name}")
def get_name(name: NamePath, wired: Wired, _: Asking) -> Name:
    """Return what a name stands for now."""
    return naming.find_name(wired.parts, name)


@router.delete("/{name}", status_code=204)
def delete_name(name: NamePath, wired: Wired, caller: Asking) -> None:
    """Let a name stand for nothing. Its history stays, and so do the engines."""
    naming.remove_name(wired.parts, name, caller)


@router.get("/{name}/history")
def get_history(name: NamePath, wired: Wired, _: Asking) -> NameHistory:
    """Return what a name stood for, newest first, removed ones too."""
    with wired.parts.database.read() as tx:
        items = tuple(names.history(tx, name))
    if not items:
        raise Refused("not_found", f"There never was a name {name}.")
    return NameHistory(items=items)


@open_router.get("/{name}/ready", status_code=204, responses={503: {"description": "It is being built."}})
def name_ready(name: NamePath, wired: Wired, asking: Machine, response: Response) -> None:
    """Answer a probe that waits for the engine its machine needs: 204 there, 503 being built, 404 neither."""
    parts = wired.parts
    found = naming.find_name(parts, name)
    try:
        engine = naming.meant(parts, found, asking)
    except Refused as missing:
        build = naming.in_the_making(parts, naming.wish(found, asking))
        if build is None:
            raise Refused(missing.code, "No engine fits, and none is being built.") from missing  # the rest has a token
        with parts.database.read() as tx:
            raise being_built(build_view(tx, parts, build)) from missing
    response.headers["Content-Location"] = f"/v1/engines/{engine.engine_key}"


@router.get("/{name}/plan", response_class=Response, responses=PLAN)
@router.head("/{name}/plan", response_class=Response, responses=PLAN, operation_id="head_name_plan")
def get_name_plan(name: NamePath, request: Request, wired: Wired, _: Asking, asking: Machine) -> Response:
    """Return the plan that the name means for the machine that asks, now."""
    engine = naming.meant(wired.parts, naming.find_name(wired.parts, name), asking)
    response = send_plan(request, wired, engine.plan, immutable=False)
    response.headers["Content-Location"] = f"/v1/engines/{engine.engine_key}/plan"
    return response

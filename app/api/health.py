"""Probes: asynchronous, without thread or session, and open: who shows no token is told whether and why, no names."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from app.api.service import Service, Wired
from app.errors import Busy, Refused

router = APIRouter(tags=["service"])

NAMELESS = {  # in place of reasons that name GPUs and models
    "worker": "the builder takes no builds now",
    "prebuild": "not every name that is to be built beforehand is ready",
}


@router.get("/livez")
async def livez() -> dict[str, str]:
    """Answer while the process runs and its event loop turns."""
    return {"state": "alive"}


@router.get(
    "/readyz",
    responses={
        503: {"content": {"application/json": {}}, "description": "Builds cannot be taken; the reasons are listed."}
    },
)
async def readyz(wired: Wired, request: Request, verbose: str | None = None) -> Response:
    """Answer whether builds can be taken: 200, or 503 with the reasons. `?verbose` lists every check to who may read."""
    checks = wired.readiness.checks
    may_read = await _may_read(wired, request)
    reasons = {name: reason if may_read else NAMELESS.get(name, reason) for name, reason in checks.items() if reason}
    body: dict[str, Any] = {"ready": not reasons, "reasons": reasons}
    if verbose is not None and may_read:
        body["checks"] = {name: reason or "ok" for name, reason in checks.items()}
        body["machine"] = wired.readiness.machine()
        body["prebuild"] = wired.prebuild.progress
    return JSONResponse(body, 503 if reasons else 200, {"Cache-Control": "no-store"})


async def _may_read(wired: Service, request: Request) -> bool:
    """Only a token that memory does not know is looked up: probes send none."""
    try:
        (await wired.keyring.identify(request.headers.get("authorization", ""))).may("read")
    except (Refused, Busy):
        return False
    return True

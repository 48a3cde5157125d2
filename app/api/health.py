"""Probes: asynchronous, without thread, session or token."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from app.api.service import Wired

router = APIRouter(tags=["service"])


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
async def readyz(wired: Wired, verbose: str | None = None) -> Response:
    """Answer whether builds can be taken: 200, or 503 with the reasons. `?verbose` lists every check."""
    checks = wired.readiness.checks
    reasons = {name: reason for name, reason in checks.items() if reason}
    body: dict[str, Any] = {"ready": not reasons, "reasons": reasons}
    if verbose is not None:
        body["checks"] = {name: reason or "ok" for name, reason in checks.items()}
        body["machine"] = wired.readiness.machine()
        body["prebuild"] = wired.prebuild.progress
    return JSONResponse(body, 503 if reasons else 200, {"Cache-Control": "no-store"})

"""`/metrics`: what Prometheus scrapes."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response

from app.api.service import Asking, Wired

router = APIRouter(tags=["service"])

PAGE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}}


@router.get("/metrics", response_class=Response, responses=PAGE)
def metrics(wired: Wired, _: Asking, accept: Annotated[str, Header()] = "") -> Response:
    """Return what is counted, as Prometheus and OpenMetrics read it. Needs a token where others do: scope read."""
    page, media = wired.parts.metrics.page(accept)
    return Response(page, headers={"Content-Type": media, "Cache-Control": "no-store"})

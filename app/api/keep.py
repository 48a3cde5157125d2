"""`/v1/engines/{key}`: keep an engine, or remove it."""

from fastapi import APIRouter

from app.api.document import refusals
from app.api.models import DigestPath
from app.api.service import Admin, Service, Wired
from app.builds.parts import in_thread
from app.builds.removal import remove
from app.db import engines
from app.errors import Refused

router = APIRouter(prefix="/v1/engines", tags=["engines"])


@router.put("/{key}/pin", status_code=204)
def put_pin(key: DigestPath, wired: Wired, _: Admin) -> None:
    """Keep an engine: nothing removes it until the pin is taken away."""
    _pin(wired, key, True)


@router.delete("/{key}/pin", status_code=204)
def delete_pin(key: DigestPath, wired: Wired, _: Admin) -> None:
    """Take the pin away; there need be none."""
    _pin(wired, key, False)


@router.delete("/{key}", status_code=204, responses=refusals("engine_pinned", "engine_busy"))
async def delete_engine(key: DigestPath, wired: Wired, _: Admin) -> None:
    """Remove an engine; its bytes stay while another engine has them, and whoever downloads them gets them whole."""
    try:
        await in_thread(lambda: remove(wired.parts, key))
    finally:
        wired.manifests.forget(key)


def _pin(wired: Service, key: str, pinned: bool) -> None:
    with wired.parts.database.write() as tx:
        if not engines.pin(tx, key, pinned):
            raise Refused("not_found", f"No engine {key}.")

"""`/v1/engines`: which engine is the right one, and why two are not the same."""

from fastapi import APIRouter

from app.api.models import DigestPath
from app.api.service import Asking, Service, Wired
from app.db import engines
from app.domain.comparison import compare
from app.errors import Refused
from trtforge.contract.compare import EngineDiff
from trtforge.contract.engines import Manifest

router = APIRouter(prefix="/v1/engines", tags=["engines"])


@router.get("/{a}/diff/{b}")
def get_diff(a: DigestPath, b: DigestPath, wired: Wired, _: Asking) -> EngineDiff:
    """Answer why two engines differ, in groups."""
    return compare(_manifest(wired, a), _manifest(wired, b))


def _manifest(wired: Service, key: str) -> Manifest:
    with wired.parts.database.read() as tx:
        found = engines.manifest(tx, key)
    if found is None:
        raise Refused("not_found", f"No engine {key}.")
    return Manifest.model_validate_json(found)

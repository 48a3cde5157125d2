"""`/v1/engines`: which engine is the right one, and why two are not the same."""

from fastapi import APIRouter

from app.api.models import DigestPath
from app.api.service import Asking, Service, Wired
from app.builds.resolve import resolve
from app.db import engines
from app.domain.comparison import compare
from app.errors import Refused
from trtforge.contract.compare import EngineDiff
from trtforge.contract.engines import Manifest
from trtforge.contract.resolve import Resolve, Resolved

router = APIRouter(prefix="/v1/engines", tags=["engines"])


@router.post("/resolve", responses={404: {"description": "None fits; near misses and what to submit."}})
def post_resolve(asked: Resolve, wired: Wired, _: Asking) -> Resolved:
    """Return the engine that the asking machine can take, and why the others were refused."""
    return resolve(wired.parts, asked)


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

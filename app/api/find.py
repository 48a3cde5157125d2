"""`/v1/engines`: which engine is the right one, and why two are not the same."""

from fastapi import APIRouter

from app.api.document import refusals
from app.api.models import DigestPath
from app.api.service import Asking, Reading, Service, Wired
from app.builds.resolve import resolve
from app.domain.comparison import compare
from app.errors import Refused
from trtforge.contract.compare import EngineDiff
from trtforge.contract.engines import Manifest
from trtforge.contract.resolve import Resolve, Resolved

router = APIRouter(prefix="/v1/engines", tags=["engines"])


@router.post("/resolve", responses=refusals("no_compatible_engine"))
def post_resolve(asked: Resolve, wired: Wired, _: Reading) -> Resolved:
    """Return the engine that the asking machine can take, and why the others were refused."""
    return resolve(wired.parts, asked)


@router.get("/{a}/diff/{b}")
async def get_diff(a: DigestPath, b: DigestPath, wired: Wired, _: Asking) -> EngineDiff:
    """Answer why two engines differ, in groups."""
    return compare(await _manifest(wired, a), await _manifest(wired, b))


async def _manifest(wired: Service, key: str) -> Manifest:
    found = await wired.manifests.get(key)
    if found is None:
        raise Refused("not_found", f"No engine {key}.")
    return Manifest.model_validate_json(found)

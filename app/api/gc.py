"""`/v1/gc` and `/v1/verify`: keep the store in order."""

from fastapi import APIRouter

from app.api.document import refusals
from app.api.service import Admin, Wired
from app.builds.gc import collect
from app.builds.parts import in_thread
from app.builds.verify import verify
from trtforge.contract.keeping import Collection, Verification

router = APIRouter(prefix="/v1", tags=["keeping"])


@router.post("/gc", responses=refusals("gc_running"))
async def post_gc(wired: Wired, _: Admin, dry_run: bool = False) -> Collection:
    """Remove what retention and quota let go; with `?dry_run=true` only say what would go, and why."""
    return await in_thread(lambda: collect(wired.parts, dry_run))


@router.post("/verify")
async def post_verify(wired: Wired, _: Admin, quick: bool = False) -> Verification:
    """Compare every row with its bytes, and back. `?quick=true` compares sizes and reads no bytes."""
    return await in_thread(lambda: verify(wired.parts, quick))

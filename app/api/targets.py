"""`/v1/targets`: the hardware this service builds for."""

from datetime import timedelta

from fastapi import APIRouter

from app.api.service import Asking, Wired
from app.db import targets
from trtforge.contract.target import Targets

router = APIRouter(prefix="/v1/targets", tags=["targets"])


@router.get("")
def list_targets(wired: Wired, _: Asking) -> Targets:
    """Return every known target, the default first; workers are those seen within a lease."""
    parts = wired.parts
    with parts.database.read() as tx:
        return Targets(items=tuple(targets.known(tx, parts.now() - timedelta(seconds=parts.settings.lease_s))))

"""`/v1/engines/{key}/signature` and `/v1/signing-keys`: who vouches for an engine."""

from fastapi import APIRouter, Response

from app.api.models import DigestPath
from app.api.service import Asking, Wired
from app.builds.signing import signing_keys
from app.db import engines
from app.errors import Refused
from trtforge.contract.provenance import Envelope, SigningKeys

router = APIRouter(prefix="/v1", tags=["engines"])

ENVELOPE = "application/vnd.dsse.envelope.v1+json"


@router.get("/engines/{key}/signature", response_model=Envelope)
def get_signature(key: DigestPath, wired: Wired, _: Asking) -> Response:
    """Return the DSSE envelope over an engine's plan and manifest; 404 `unsigned` when it has none."""
    with wired.parts.database.read() as tx:
        if not engines.is_there(tx, key):
            raise Refused("not_found", f"No engine {key}.")
    signature = wired.parts.store.signature(key)
    if signature is None:
        raise Refused("unsigned")
    return Response(signature, media_type=ENVELOPE)


@router.get("/signing-keys")
async def get_signing_keys(wired: Wired, _: Asking) -> SigningKeys:
    """Return the public keys that this service signs with. Whom you trust is yours to say: compare them out of band."""
    return signing_keys(wired.parts)

"""What the routes work with, and who asks."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from app.builds.feed import Feeds
from app.builds.manifests import Manifests
from app.builds.parts import Caller, Parts
from app.builds.prebuild import Prebuild
from app.builds.readiness import Readiness
from app.builds.upload import Uploads
from app.errors import Refused

ANYONE = Caller("anonymous", admin=True, anonymous=True)  # on loopback without tokens
ADMIN = Caller("admin", admin=True, anonymous=False)


@dataclass(frozen=True)
class Service:
    parts: Parts
    feeds: Feeds
    uploads: Uploads
    readiness: Readiness
    manifests: Manifests
    prebuild: Prebuild


async def service(request: Request) -> Service:
    """Return the wired service. Asynchronous, as `caller` is: FastAPI gives a plain function a thread, a probe none."""
    wired: Service = request.app.state.service
    return wired


Wired = Annotated[Service, Depends(service)]


async def caller(wired: Wired, request: Request) -> Caller:
    """Return who asks. Raises `Refused`: unauthorized."""
    return identify(wired, request.headers.get("authorization", ""))


def identify(wired: Service, authorization: str) -> Caller:
    """Return who sends this header. Raises `Refused`: unauthorized."""
    token = wired.parts.settings.admin_token
    if token is None:
        return ANYONE
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer" or not _same(given.strip(), token.get_secret_value()):
        raise Refused("unauthorized", headers={"WWW-Authenticate": 'Bearer realm="trtforge"'})
    return ADMIN


async def admin(asking: Annotated[Caller, Depends(caller)]) -> Caller:
    """Return who asks. Raises `Refused`: unauthorized, forbidden."""
    if not asking.admin:
        raise Refused("forbidden", "This needs scope admin.")
    return asking


def _same(given: str, right: str) -> bool:
    """Compare digests, so that neither length nor prefix shows in the time it takes."""
    return hmac.compare_digest(*(hashlib.sha256(s.encode()).digest() for s in (given, right)))


Asking = Annotated[Caller, Depends(caller)]
Admin = Annotated[Caller, Depends(admin)]

"""What the routes work with, and who asks."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from app.builds.feed import Feeds
from app.builds.keyring import Keyring, Known
from app.builds.manifests import Manifests
from app.builds.parts import Caller, Parts
from app.builds.prebuild import Prebuild
from app.builds.readiness import Readiness
from app.builds.upload import Uploads

READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True)
class Service:
    parts: Parts
    feeds: Feeds
    uploads: Uploads
    readiness: Readiness
    manifests: Manifests
    prebuild: Prebuild
    keyring: Keyring


async def service(request: Request) -> Service:
    """Return the wired service. Asynchronous, as `caller` is: FastAPI gives a plain function a thread, a probe none."""
    wired: Service = request.app.state.service
    return wired


Wired = Annotated[Service, Depends(service)]


bearer = HTTPBearer(scheme_name="token", auto_error=False, description="A token of `POST /v1/tokens`, or the first.")


async def known(wired: Wired, request: Request, _: Annotated[object, Security(bearer)] = None) -> Known:
    """Return who asks and what they may do. Raises `Refused`: unauthorized."""
    return await wired.keyring.identify(request.headers.get("authorization", ""))


Someone = Annotated[Known, Depends(known)]


async def caller(asking: Someone, request: Request) -> Caller:
    """Return who asks: with scope read where nothing changes, else with scope build. Raises `Refused`: forbidden."""
    return asking.may("read" if request.method in READS else "build")


async def reader(asking: Someone) -> Caller:
    """Return who asks; for a POST that changes nothing."""
    return asking.may("read")


async def admin(asking: Someone) -> Caller:
    """Return who asks. Raises `Refused`: unauthorized, forbidden."""
    return asking.may("admin")


Asking = Annotated[Caller, Depends(caller)]
Reading = Annotated[Caller, Depends(reader)]
Admin = Annotated[Caller, Depends(admin)]

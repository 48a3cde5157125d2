"""Names that must be ready before this service is: set, uploaded and asked for at start, then followed to their end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
import yaml
from pydantic import TypeAdapter, ValidationError

from app.builds.files import BATCH
from app.builds.naming import set_name
from app.builds.parts import Caller, Parts, in_thread
from app.builds.submit import submit
from app.builds.upload import Uploads
from app.builds.views import find_build, find_request
from app.errors import Busy, NotReady, Refused, StoreFull, StoreUnusable
from app.store.disk import digest_of
from trtforge.contract.base import Asked
from trtforge.contract.builds import Build, Request, Submit
from trtforge.contract.names import EngineName, Want
from trtforge.contract.resolve import Policy
from trtforge.contract.spec import BuildOptions, BuildSpec
from trtforge.contract.target import TargetSelector

CALLER = Caller("prebuild", admin=True, anonymous=False, bounded=False)
LOOK_EVERY = 1.0  # seconds

log = structlog.get_logger()


class Prewant(Asked):
    """One name. `model` is a digest, or an .onnx file relative to the list."""

    model: str
    spec: BuildSpec = BuildSpec()
    target: TargetSelector = TargetSelector()
    policy: Policy = "exact"
    options: BuildOptions = BuildOptions()


class Prelist(Asked):
    names: dict[EngineName, Prewant]


_prelist = TypeAdapter(Prelist)


def read_list(path: Path | None) -> dict[str, Prewant]:
    """Return the names of a `prebuild.yaml`; none without one. Raises `NotReady` that says what is wrong in it."""
    if path is None:
        return {}
    try:
        return dict(_prelist.validate_python(yaml.safe_load(path.read_text())).names)
    except OSError as error:
        raise NotReady(f"TRTFORGE_PREBUILD={path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise NotReady(f"TRTFORGE_PREBUILD={path} is not YAML: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise NotReady(f"TRTFORGE_PREBUILD={path}: {wrong}.") from error


class Prebuild:
    """Follows the list. `progress` and `trouble` are looked at by probes and cost nothing; once ready it stays so."""

    def __init__(self, parts: Parts, uploads: Uploads) -> None:
        self._parts, self._uploads, self._folder = parts, uploads, Path()
        self._wants: dict[str, Prewant] = {}
        self.progress: dict[str, dict[str, Any]] = {}

    def open(self) -> None:
        """Read the list. Raises `NotReady`."""
        path = self._parts.settings.prebuild
        self._wants = read_list(path)
        self._folder = path.parent if path else Path()
        self.progress = {name: {"state": "waiting"} for name in self._wants}

    @property
    def trouble(self) -> str | None:
        """Why the service is not ready for the list's sake, or None."""
        missing = [f"{name} {self._words(told)}" for name, told in self.progress.items() if told["state"] != "ready"]
        ready = len(self.progress) - len(missing)
        return f"{ready} of {len(self.progress)} names are ready: {'; '.join(missing)}" if missing else None

    def _words(self, told: dict[str, Any]) -> str:
        return f"{told['state']} ({told.get('stage') or told.get('reason')})" if len(told) > 1 else str(told["state"])

    async def run(self) -> None:
        """Ask for everything on the list at once, and follow it. Needs a known target."""
        await asyncio.gather(*(self._one(name, want) for name, want in self._wants.items()))

    async def _one(self, name: str, want: Prewant) -> None:
        try:
            request_id = await self._persistently(name, want)
            request = await self._ended(name, request_id)
        except (Refused, OSError) as error:
            self._fail(name, error.detail if isinstance(error, Refused) else str(error.strerror))
            return
        if request.state == "served":
            self.progress[name] = {"state": "ready"}
            log.info("prebuilt", name=name)
        else:
            self._fail(name, request.failure.message if request.failure else request.state)

    def _fail(self, name: str, reason: str) -> None:
        self.progress[name] = {"state": "failed", "reason": reason}
        log.error("prebuild_failed", name=name, reason=reason)

    async def _persistently(self, name: str, want: Prewant) -> str:
        while True:
            try:
                return await self._ask(name, want)
            except (Busy, StoreFull, StoreUnusable) as error:
                self.progress[name] = {"state": "waiting", "reason": str(error)}
                await asyncio.sleep(LOOK_EVERY)

    async def _ask(self, name: str, want: Prewant) -> str:
        """Return the request that waits for the engine."""
        model = want.model if want.model.startswith("sha256:") else await self._upload(self._folder / want.model)
        meant = Want(model=model, spec=want.spec, target=want.target, policy=want.policy)
        await in_thread(lambda: set_name(self._parts, name, meant, CALLER))
        asked = Submit(model=model, spec=want.spec, target=want.target, options=want.options)
        answer = await in_thread(lambda: submit(self._parts, asked, CALLER, None, b""))
        return answer.request_id

    async def _upload(self, path: Path) -> str:
        digest, size = await in_thread(lambda: (digest_of(path), path.stat().st_size if path.exists() else 0))
        if digest is None:
            raise Refused("model_unknown", f"There is no file {path}.")
        model, _ = await self._uploads.receive(digest, _pieces(path), size)
        return model.digest

    async def _ended(self, name: str, request_id: str) -> Request:
        """Follow a request to its end."""
        while True:
            with suppress(Busy):
                request, build = await in_thread(lambda: self._seen(request_id))
                if request.state != "waiting":
                    return request
                if build:
                    self.progress[name] = _told(build)
            await asyncio.sleep(LOOK_EVERY)

    def _seen(self, request_id: str) -> tuple[Request, Build | None]:
        request = find_request(self._parts, request_id)
        assert request is not None  # a request that waits is kept
        return request, find_build(self._parts, request.builds[-1]) if request.builds else None


def _told(build: Build) -> dict[str, Any]:
    told = build.model_dump(mode="json", include={"state", "stage", "waiting_for", "progress"})
    return {**told, "build": build.id}


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await in_thread(lambda: file.read(BATCH)):
            yield piece

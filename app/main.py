"""The one place where objects are wired: an app from settings, and what starts and stops with it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime

import structlog
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

import app as package
from app.api import (
    builds,
    document,
    engines,
    events,
    files,
    find,
    health,
    keep,
    middleware,
    models,
    names,
    problems,
    requests,
    schemas,
    targets,
    tokens,
)
from app.api.lookup import Lookup
from app.api.sendfile import note_server
from app.api.service import Service
from app.builds.feed import Feeds
from app.builds.keyring import Keyring
from app.builds.manifests import Manifests
from app.builds.parts import Parts, utc_now
from app.builds.prebuild import Prebuild
from app.builds.readiness import Readiness
from app.builds.recover import recover
from app.builds.register import forget_workers, register
from app.builds.supervise import Supervisor
from app.builds.upload import Uploads
from app.db import migrate
from app.db.session import Database
from app.domain.ids import new_id
from app.errors import Busy
from app.settings import Settings
from app.store.local import LocalStore
from app.worker.probe import BuilderUnusable, probe

PROBE_AGAIN = 5.0  # seconds until a builder that could not report is asked again
THREADS = 16  # for database and disk: more than cores, because they wait

log = structlog.get_logger()


class Running:
    """What lives between start and stop."""

    def __init__(self, settings: Settings, now: Callable[[], datetime] = utc_now) -> None:
        settings.check()
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.parts = Parts(settings, Database(settings.url), LocalStore(settings.data_dir / "store"), now=now)
        self.feeds = Feeds(self.parts)
        uploads = Uploads(self.parts)
        self.prebuild = Prebuild(self.parts, uploads)
        self.readiness = Readiness(self.parts, self._worker_trouble, lambda: self.prebuild.trouble)
        manifests = Manifests(self.parts)
        keyring = Keyring(self.parts)
        self.service = Service(self.parts, self.feeds, uploads, self.readiness, manifests, self.prebuild, keyring)
        self._owner: str | None = None  # of the staging folder
        self._worker: str | None = None
        self._supervisor: Supervisor | None = None
        self._trouble: str | None = "the builder has not reported yet"
        self._loops: list[asyncio.Task[None]] = []

    def _worker_trouble(self) -> str | None:
        return self._trouble or (self._supervisor.broken if self._supervisor else None)

    def open(self) -> None:
        """Migrate and take back what an earlier process left. Blocks. Raises `NotReady`, `Busy`, `StoreUnusable`."""
        if self._owner is None:
            self.prebuild.open()
            self.parts.database.claim_server()
            self.parts.database.ping()
            migrate.upgrade(self.parts.database)
            owner = new_id("wrk")
            self.parts.store.open_staging(owner)
            self._owner = owner
            recover(self.parts)
            forget_workers(self.parts, self.parts.store.sweep())

    async def start(self) -> None:
        """Begin to work."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "work"))
        self.parts.bus.bind(loop)
        await asyncio.to_thread(self.open)
        assert self._owner is not None
        worker = asyncio.create_task(self._start_worker(self._owner))
        self._loops = [asyncio.create_task(self.readiness.follow()), worker]

    async def _start_worker(self, owner: str) -> None:
        """Probe the builder and begin to claim; the API answers meanwhile, and says why it is not ready."""
        settings = self.parts.settings
        while self._worker is None:
            try:
                probed = await probe(settings.builder, settings.probe_timeout_s)
                target_id = await asyncio.to_thread(register, self.parts, owner, probed)
                self._worker = owner
            except (BuilderUnusable, Busy, OSError) as error:  # a killed child, a database away: it may pass
                self._trouble = str(error)
                log.error("builder_unusable", reason=str(error))
                await asyncio.sleep(PROBE_AGAIN)
        self._supervisor = Supervisor(self.parts, owner, target_id)
        self._supervisor.start()
        self._trouble = None
        self._loops.append(asyncio.create_task(self.prebuild.run()))
        log.info(
            "worker_ready",
            worker=owner,
            builder=probed.builder,
            builder_version=probed.builder_version,
            landlock=probed.landlock,
        )
        if not probed.landlock:
            log.warning("no_landlock", reason="children that read models are held by limits only")

    async def drain(self) -> None:
        """Take no more work, end or hand back what runs, then end the streams. Cancels are served meanwhile."""
        self.readiness.drain()
        if self._supervisor:
            await self._supervisor.drain()
        self.feeds.close()

    async def stop(self) -> None:
        await self.drain()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        if self._worker:
            await asyncio.to_thread(forget_workers, self.parts, [self._worker])
        self.parts.store.close()
        self.parts.database.close()


class _App(FastAPI):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        note_server(scope, send)  # before the framework wraps `send`
        await super().__call__(scope, receive, send)


def create_app(settings: Settings) -> FastAPI:
    """Return the service as an ASGI app. Raises `NotReady` when the settings are unsafe."""
    running = Running(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await running.start()
        try:
            yield
        finally:
            await running.stop()

    app = _App(
        title="trtforge",
        version=package.__version__,
        description=package.__doc__ or "",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = running.service
    app.state.running = running
    for room in (
        engines,
        models,
        files,
        targets,
        builds,
        requests,
        events,
        find,
        keep,
        names,
        tokens,
        schemas,
        health,
    ):  # most asked first
        app.include_router(room.router)
    app.include_router(engines.open_router)
    app.include_router(names.open_router)
    app.add_middleware(Lookup, wired=running.service)
    app.add_middleware(middleware.BodyLimit, limit=settings.max_body_bytes)
    app.add_middleware(middleware.PlainAddress)
    app.add_middleware(middleware.RequestLog)
    problems.install(app)
    document.install(app)
    return app

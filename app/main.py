"""The one place where objects are wired: an app from settings, and what starts and stops with it."""

import asyncio
import gc as garbage
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime

import structlog
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

import app as package
from app.api import (
    artifacts,
    builds,
    document,
    engines,
    events,
    files,
    find,
    gc,
    health,
    keep,
    metrics,
    middleware,
    models,
    names,
    problems,
    refit,
    requests,
    schemas,
    signatures,
    targets,
    tokens,
)
from app.api.lookup import Lookup
from app.api.sendfile import note_server
from app.api.service import Service
from app.builds.feed import Feeds
from app.builds.gc import Collector
from app.builds.keyring import Keyring
from app.builds.manifests import Manifests
from app.builds.parts import Parts, utc_now
from app.builds.plugins import Plugins
from app.builds.prebuild import Prebuild
from app.builds.readiness import Readiness
from app.builds.recover import recover
from app.builds.register import forget_workers, register
from app.builds.signing import signer_of, trusted_keys
from app.builds.supervise import Supervisor
from app.builds.upload import Uploads
from app.db import migrate
from app.db.session import Database
from app.domain.ids import new_id
from app.errors import Busy
from app.settings import Settings
from app.store.local import LocalStore
from app.worker.choice import Choice, choose
from app.worker.devices import Watch
from app.worker.probe import BuilderUnusable

PROBE_AGAIN = 5.0  # seconds until a builder that could not report is asked again
THREADS = 16  # for database and disk: more than cores, because they wait

log = structlog.get_logger()


class Running:
    """What lives between start and stop."""

    def __init__(self, settings: Settings, now: Callable[[], datetime] = utc_now) -> None:
        settings.check()
        trusted_keys(settings)  # refused now, not at the first import
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.parts = Parts(
            settings,
            Database(settings.url),
            LocalStore(settings.data_dir / "store"),
            plugins=Plugins.read(settings.plugins),
            now=now,
            signer=signer_of(settings),
        )
        self.feeds = Feeds(self.parts)
        self._count()
        uploads = Uploads(self.parts)
        self.prebuild = Prebuild(self.parts, uploads)
        self.readiness = Readiness(self.parts, self._worker_trouble, lambda: self.prebuild.trouble)
        manifests = Manifests(self.parts)
        keyring = Keyring(self.parts)
        self.service = Service(self.parts, self.feeds, uploads, self.readiness, manifests, self.prebuild, keyring)
        self._owner: str | None = None  # of the staging folder
        self._watch = Watch()
        self._supervisors: list[Supervisor] = []
        self._trouble: str | None = "the builder has not reported yet"
        self._loops: list[asyncio.Task[None]] = []

    def _count(self) -> None:
        """Let the metrics see what only its owners know."""
        parts = self.parts
        parts.database.committed = parts.metrics.moved
        parts.metrics.gauges_of(parts.database)
        parts.metrics.gauge("trtforge_builds_running", "Builds that run in this process.", lambda: len(parts.live))
        parts.metrics.gauge("trtforge_streams_open", "Waits and event streams.", lambda: self.feeds.watchers)
        parts.metrics.gauge("trtforge_store_free_bytes", "Free disk under the store.", parts.store.free_bytes)
        parts.metrics.gauge("trtforge_ready", "1 when /readyz says 200.", lambda: float(self.readiness.ready))

    def _worker_trouble(self) -> str | None:
        if self._trouble or (broken := next(filter(None, (s.broken for s in self._supervisors)), None)):
            return self._trouble or broken
        waits = [supervisor.waits for supervisor in self._supervisors]
        return "; ".join(dict.fromkeys(why for why in waits if why)) if all(waits) else None

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
        garbage.collect()
        garbage.freeze()  # what was imported stays: a full collection that walks it all stops every stream for 0.2 s
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, "work"))
        self.parts.bus.bind(loop)
        await asyncio.to_thread(self.open)
        assert self._owner is not None
        worker = asyncio.create_task(self._start_workers(self._owner))
        collector = asyncio.create_task(Collector(self.parts).run())
        lag = asyncio.create_task(self.parts.metrics.watch_loop())
        self._loops = [asyncio.create_task(self.readiness.follow()), lag, collector, worker]

    async def _start_workers(self, owner: str) -> None:
        """Choose the builder and begin to claim; the API answers meanwhile, and says why it is not ready."""
        while not self._supervisors:
            try:
                choice = await choose(self.parts.settings, self._watch)
                self._supervisors = await asyncio.to_thread(self._register, owner, choice)
            except (BuilderUnusable, Busy, OSError) as error:  # a killed child, a database away: it may pass
                if self._trouble != str(error):
                    log.error("builder_unusable", reason=str(error))
                self._trouble = str(error)
                await asyncio.sleep(PROBE_AGAIN)
        for supervisor in self._supervisors:
            supervisor.start()
        self._trouble = None
        self._loops.append(asyncio.create_task(self.prebuild.run()))
        probed = choice.probed
        named = {"builder": probed.builder, "builder_version": probed.builder_version, "why": choice.why}
        self.readiness.machine = lambda: {
            **named,
            "devices": {device.name: device.trouble or "ok" for device in choice.devices},
            "unusable": self._watch.unusable,
        }
        log.info("worker_ready", worker=owner, landlock=probed.landlock, **self.readiness.machine())
        if not probed.landlock:
            log.warning("no_landlock", reason="children that read models are held by limits only")

    def _register(self, owner: str, choice: Choice) -> list[Supervisor]:
        """Make one worker for each device; the first has the process's own id."""
        forget_workers(self.parts, [owner])  # of a try that a busy database cut short
        made = []
        for number, device in enumerate(choice.devices):
            worker = f"{owner}.{number}" if number else owner
            target_id = register(self.parts, worker, choice.probed, device, owner)
            made.append(Supervisor(self.parts, worker, target_id, device=device, tends=number == 0))
        return made

    async def drain(self) -> None:
        """Take no more work, end or hand back what runs, then end the streams. Cancels are served meanwhile."""
        self.readiness.drain()
        await asyncio.gather(*(supervisor.drain() for supervisor in self._supervisors))
        self.feeds.close()

    async def stop(self) -> None:
        await self.drain()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._watch.stop()
        if self._owner and self._supervisors:
            await asyncio.to_thread(forget_workers, self.parts, [self._owner])
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
        gc,
        names,
        tokens,
        schemas,
        signatures,
        artifacts,
        refit,
        health,
        metrics,
    ):  # most asked first
        app.include_router(room.router)
    app.include_router(engines.open_router)
    app.include_router(names.open_router)
    app.add_middleware(Lookup, wired=running.service)
    app.add_middleware(middleware.BodyLimit, limit=settings.max_body_bytes)
    app.add_middleware(middleware.PlainAddress)
    app.add_middleware(middleware.RequestLog, metrics=running.parts.metrics)
    problems.install(app)
    document.install(app)
    return app

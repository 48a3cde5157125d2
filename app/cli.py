"""Commands that join `trtforge` when the service is installed: serve, db."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import structlog
import typer
import uvicorn
from pydantic import ValidationError

from app.api.protocol import BoundedProtocol
from app.builds.parts import Parts
from app.builds.reindex import reindex as reindex_parts
from app.builds.verify import verify as verify_parts
from app.db import migrate
from app.db.session import Database
from app.domain.ids import new_id
from app.errors import Busy, NotReady, StoreFull, StoreUnusable
from app.main import create_app
from app.settings import Settings
from app.store.local import LocalStore
from trtforge.cli.keep import verified

GRACE = 3  # seconds for open connections once the streams were told to end

db = typer.Typer(help="Look after the database of the service.", no_args_is_help=True)


class _Server(uvicorn.Server):
    """uvicorn, with a drain before its own shutdown: it stays reachable until running builds are handed back.

    Its own handler would raise the signal again at the end; a service that was asked to stop and did ends with 0.
    """

    _draining: "asyncio.Task[None] | None" = None

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._loop.call_soon_threadsafe(self._asked)

    def _asked(self) -> None:
        if self._draining is None:
            self._draining = asyncio.ensure_future(self.config.app.state.running.drain())  # type: ignore[union-attr]
            self._draining.add_done_callback(lambda _: self._leave())
        else:  # asked twice: at once
            self.force_exit = True
            self._leave()

    def _leave(self) -> None:
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the store and the SQLite database.")] = None,
) -> None:
    """Run the service: API, supervisor and builder on this machine. Every setting has a TRTFORGE_ variable."""
    given = {k: v for k, v in {"host": host, "port": port, "data_dir": data_dir}.items() if v is not None}
    settings = _settings(given)
    _log(settings.log_level)
    try:
        app = create_app(settings)
        app.state.running.open()
        listening = _listen(settings)
    except (NotReady, Busy, StoreFull, StoreUnusable, OSError) as error:
        _give_up(str(error))
    shown = f"http://{_shown(listening)}"
    print(json.dumps({"event": "listening", "url": shown}), file=sys.stderr, flush=True)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE,
        server_header=False,
        lifespan="on",
    )
    server = _Server(config)
    server.run(sockets=[listening])
    if not server.started:
        raise typer.Exit(3)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        raise NotReady(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}. Take another port."
        ) from error
    listening.set_inheritable(False)
    return listening


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _settings(given: dict[str, Any]) -> Settings:
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [f"TRTFORGE_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors()]
        _give_up("\n".join(lines))


def _log(level: str) -> None:
    """JSON lines on stderr, our own and those of the libraries."""
    number = getattr(logging, level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    foreign = logging.StreamHandler(sys.stderr)
    foreign.setFormatter(
        structlog.stdlib.ProcessorFormatter(processor=structlog.processors.JSONRenderer(), foreign_pre_chain=shared)
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[foreign], force=True)


def _give_up(why: str) -> NoReturn:
    typer.secho(f"trtforge: {why}", fg="red", err=True)
    raise typer.Exit(2)


@db.command()
def upgrade() -> None:
    """Bring the schema to this version."""
    settings = _settings({})
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    database = Database(settings.url)
    try:
        database.claim_server()
        migrate.upgrade(database)
    except NotReady as error:
        _give_up(str(error))
    typer.echo(f"at {migrate.current(database)}")


@db.command()
def current() -> None:
    """Show the schema of the database and of this version."""
    database = Database(_settings({}).url)
    typer.echo(f"database {migrate.current(database)}, this version {migrate.head()}")


@contextmanager
def _opened() -> Iterator[Parts]:
    """Open the data folder as the service does; what goes wrong becomes a message and exit code 2."""
    settings = _settings({})
    if not (settings.data_dir / "store").is_dir():
        _give_up(f"there is no store in {settings.data_dir} (TRTFORGE_DATA_DIR)")
    try:
        if migrate.current(database := Database(settings.url)) != migrate.head():
            _give_up(f"the schema of the database is not this version's, {migrate.head()}; run `trtforge db upgrade`")
        yield Parts(settings, database, LocalStore(settings.data_dir / "store"))
    except (NotReady, Busy, StoreFull, StoreUnusable, OSError) as error:
        _give_up(str(error))


@db.command()
def verify(
    quick: Annotated[bool, typer.Option("--quick", help="Compare sizes, do not read the bytes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")] = False,
) -> None:
    """Compare every row with its bytes, and back; beside a running service too. Exit code 1 when something is wrong."""
    with _opened() as parts:
        found = verify_parts(parts, quick)
    typer.echo(found.model_dump_json(indent=2) if as_json else verified(found))
    if not found.ok:
        raise typer.Exit(1)


@db.command()
def reindex() -> None:
    """Make the rows of engines and models from the store alone, and what is missing beside it from the rows."""
    _log("error")
    upgrade()
    with _opened() as parts:
        parts.store.open_staging(new_id("wrk"))
        try:
            added = reindex_parts(parts)
        finally:
            parts.store.close()
    typer.echo(f"added {', '.join(f'{count} {name}' for name, count in asdict(added).items())}")

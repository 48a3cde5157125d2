"""What the builds room works with; wired once, in `app.main`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from app.builds.bus import Bus
from app.builds.live import Live
from app.builds.metrics import Metrics
from app.builds.plugins import Plugins
from app.builds.sending import Sending, Wanted
from app.db.session import Database
from app.settings import Settings
from app.store.base import Store
from trtforge.signature import Signer

T = TypeVar("T")


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Caller:
    """Who asks: the id of a token. Without tokens everyone is the same caller, and no one's request is one's own."""

    name: str
    admin: bool
    anonymous: bool
    bounded: bool = True  # by the limits on what may wait


@dataclass(frozen=True)
class Parts:
    settings: Settings
    database: Database
    store: Store
    bus: Bus = field(default_factory=Bus)
    live: Live = field(default_factory=Live)
    sending: Sending = field(default_factory=Sending)
    wanted: Wanted = field(default_factory=Wanted)
    metrics: Metrics = field(default_factory=Metrics)
    plugins: Plugins = field(default_factory=Plugins)
    now: Callable[[], datetime] = utc_now
    signer: Signer | None = None


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work (database, disk) beside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(None, work)

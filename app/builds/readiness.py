"""Whether the service can take builds, looked at in the background so that a probe costs nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

from app.builds.parts import Parts, in_thread
from app.db import migrate
from app.errors import StoreFull, StoreUnusable

LOOK_EVERY = 2.0  # seconds: how old an answer of /readyz may be


class Readiness:
    """The checks by name, each with the reason why it fails, or None."""

    def __init__(
        self, parts: Parts, worker: Callable[[], str | None], prebuild: Callable[[], str | None] = lambda: None
    ) -> None:
        """`worker` says why no builds can be taken here, `prebuild` which names are not ready yet; or None."""
        self._parts, self._worker, self._prebuild = parts, worker, prebuild
        self._checks: dict[str, str | None] = {"started": "the service is starting"}
        self.machine: Callable[[], dict[str, Any]] = dict  # builder, devices, and why these: for who asks for more
        self._draining = False

    def drain(self) -> None:
        self._draining = True

    @property
    def checks(self) -> dict[str, str | None]:
        draining = "the service is shutting down" if self._draining else None
        return {**self._checks, "worker": self._worker(), "prebuild": self._prebuild(), "draining": draining}

    @property
    def ready(self) -> bool:
        return not any(self.checks.values())

    async def follow(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY)

    async def look(self) -> None:
        self._checks = await in_thread(self._look)

    def _look(self) -> dict[str, str | None]:
        return {"database": self._database(), "store": self._store()}

    def _database(self) -> str | None:
        try:
            at, head = migrate.current(self._parts.database), migrate.head()
        except Exception as error:  # whatever a driver raises: not ready is the answer, not a crash
            return f"the database does not answer ({type(error).__name__})"
        return None if at == head else f"the schema is at {at}, not {head}; run `trtforge db upgrade`"

    def _store(self) -> str | None:
        try:
            self._parts.store.probe()
        except (StoreFull, StoreUnusable) as error:
            return f"the store cannot be written: {error}"
        return None

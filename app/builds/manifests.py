"""Manifests in memory: they never change, so a lookup need not ask the database each time."""

from collections import OrderedDict
from time import monotonic

from app.builds.parts import Parts, in_thread
from app.db import engines

MOST_BYTES = 64 << 20
FRESH_S = 2.0  # seconds: another process may have removed the engine, or built it anew with another manifest


class Manifests:
    """The manifests asked for last, as JSON. Used on the event loop only; holds `most_bytes` at most."""

    def __init__(self, parts: Parts, most_bytes: int = MOST_BYTES, fresh_s: float = FRESH_S) -> None:
        self._parts, self._most_bytes, self._fresh_s = parts, most_bytes, fresh_s
        self._kept: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        self.size = 0  # bytes

    async def get(self, engine_key: str) -> bytes | None:
        """Return the manifest of an engine as JSON, as it was at most `fresh_s` seconds ago; None: there is none."""
        if fresh := self.fresh(engine_key):
            return fresh
        asked = monotonic()
        found = await in_thread(lambda: self._look(engine_key))
        self.forget(engine_key)
        if found is not None:
            self._keep(engine_key, found, asked)
        return found

    def fresh(self, engine_key: str) -> bytes | None:
        """Return it only if it is in memory and fresh."""
        kept = self._kept.get(engine_key)
        if kept is None or monotonic() - kept[1] >= self._fresh_s:
            return None
        self._kept.move_to_end(engine_key)
        return kept[0]

    def forget(self, engine_key: str) -> None:
        if kept := self._kept.pop(engine_key, None):
            self.size -= len(kept[0])

    def _keep(self, engine_key: str, manifest: bytes, asked: float) -> None:
        self._kept[engine_key] = manifest, asked
        self.size += len(manifest)
        while self.size > self._most_bytes:
            _, (dropped, _) = self._kept.popitem(last=False)
            self.size -= len(dropped)

    def _look(self, engine_key: str) -> bytes | None:
        with self._parts.database.read() as tx:
            found = engines.manifest(tx, engine_key)
        return found.encode() if found is not None else None

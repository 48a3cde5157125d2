"""The native log of an attempt: what the builder wrote to stdout and stderr, without paths, up to a limit."""

from contextlib import suppress
from pathlib import Path

from app.errors import StoreFull, StoreUnusable
from app.store.base import Store
from app.worker.scrub import Scrubber

TAIL_LINES = 20  # of a crash: what is shown with the failure


class NativeLog:
    """Takes bytes on the event loop, hands whole clean lines to the store from a thread. Bounded in memory and on disk."""

    def __init__(self, store: Store, build_id: str, attempt: int, folders: tuple[Path, ...], limit: int) -> None:
        """`limit`: bytes kept per build; what comes after is dropped, and said so once."""
        self._store, self._build_id = store, build_id
        self._scrub = Scrubber(str(f) for f in folders)
        self._left = limit - len(store.log(build_id) or b"")
        self._partial = b""
        self._lines: list[str] = [f"--- attempt {attempt}"]
        self._last: list[str] = []

    def write(self, chunk: bytes) -> None:
        *whole, self._partial = (self._partial + chunk).split(b"\n")
        self._partial = self._partial[-4096:]  # a line without an end is cut, not collected
        self._add(whole)

    def finish(self) -> None:
        if self._partial:
            self._add([self._partial])
            self._partial = b""

    def _add(self, lines: list[bytes]) -> None:
        self._last = [*self._last, *(line.decode(errors="replace") for line in lines[-TAIL_LINES:])][-TAIL_LINES:]
        for line in lines:
            if self._left <= 0:
                return
            clean = self._scrub(line.decode(errors="replace"), limit=4096)
            self._left -= len(clean.encode()) + 1
            self._lines.append(clean if self._left > 0 else "--- the log ends here: it reached its limit")

    @property
    def waiting(self) -> bool:
        return bool(self._lines)

    def flush(self) -> None:
        """Append what came to the store. Blocks: call it from a thread."""
        lines, self._lines = self._lines, []
        with suppress(StoreFull, StoreUnusable):  # a build is worth more than its log
            self._store.append_log(self._build_id, "".join(f"{line}\n" for line in lines).encode())

    def tail(self) -> str | None:
        clean = [self._scrub(line) for line in self._last if line.strip()]
        return "\n".join(clean)[-2000:] or None

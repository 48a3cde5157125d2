"""What is being sent and what is wanted: shared by those who serve and the one who removes, in one process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic


class Sending:
    """The plans that this process is sending now, by digest. From any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: Counter[str] = Counter()
        self._noted: dict[str, float] = {}  # when a download was noted last

    @contextmanager
    def of(self, digest: str) -> Iterator[None]:
        with self._lock:
            self._open[digest] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[digest] -= 1
                if not self._open[digest]:
                    del self._open[digest]

    def now(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._open)

    def is_due(self, digest: str, every_s: float) -> bool:
        """Tell whether this was last answered yes longer ago than `every_s` seconds, about the same plan."""
        now = monotonic()
        with self._lock:
            if now - self._noted.get(digest, -every_s) < every_s:
                return False
            self._noted = {one: at for one, at in self._noted.items() if now - at < every_s} | {digest: now}
        return True


class Wanted:
    """Bytes that somebody needed and did not get, the most since it was taken. From any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._bytes = 0

    def ask(self, size: int) -> None:
        with self._lock:
            self._bytes = max(self._bytes, size)

    def take(self) -> int:
        with self._lock:
            size, self._bytes = self._bytes, 0
        return size

    @property
    def now(self) -> int:
        return self._bytes

"""The builder's timing cache: taken from a file, and what a build has added put back, whatever became of the build.

Several children share a file. It is only written under its lock, beside itself and then in its place; a reader sees the
old one or the new one. It is never in the engine key, and the manifest says what was there.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from app.worker.messages import BuildRequest, Failed, Log, Message
from app.worker.native_log import NativeLog
from app.worker.verdict import Ends, same

MOST_BYTES = 1 << 30  # of a file; a larger one is not ours
LOCK_S = 3.0  # seconds to wait for another child that writes


class TimingCache:
    """In force inside `with`. Without a file in the request it does nothing: the builder then keeps one for itself.

    What the builder says anything about is dropped, and the build goes on with an empty one; pinned, the build ends.
    """

    def __init__(
        self, trt: Any, config: Any, request: BuildRequest, log: NativeLog, say: Callable[[Message], None]
    ) -> None:
        self._trt, self._config, self._log, self._say = trt, config, log, say
        self._path = Path(request.timing_cache) if request.timing_cache else None
        self._pinned = request.timing_cache_pinned
        self._cache: Any = None
        self._taken = b""
        self._figures: dict[str, Any] = {}

    def __enter__(self) -> "TimingCache":
        """Raises `Ends` where a pinned cache cannot be used."""
        if self._path:
            self._taken = self._read(self._path)
            self._cache = self._attach(self._taken)
            if self._cache is None:
                self._drop(self._path)
                self._cache = self._attach(b"")
            self._figures = {"pinned": self._pinned, "bytes_before": len(self._taken), "entries_before": self._count()}
            if self._pinned:
                self._allow_no_miss()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._path and self._cache is not None:
            size = len(self._taken) if self._pinned else self._save(self._path)
            self._figures |= {"bytes_after": size, "entries_after": self._count()}

    def figures(self) -> dict[str, Any] | None:
        """Return what the manifest tells: sizes in bytes and entries before and after; None where there was no cache.

        The builder does not say how often it found what it looked for: entries that were not added were.
        """
        return self._figures or None

    def _read(self, path: Path) -> bytes:
        with suppress(FileNotFoundError):
            with path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
            if content or not self._pinned:
                return content
        if self._pinned:
            raise Ends(Failed("timing_cache_unusable", "The timing cache is pinned, and there is none for this GPU."))
        return b""

    def _attach(self, content: bytes) -> Any:
        """Return the builder's cache of `content`, in force; None when it says anything about it."""
        if len(content) > MOST_BYTES:
            return None
        before = self._log.complaints
        cache = self._config.create_timing_cache(content)
        taken = cache is not None and self._config.set_timing_cache(cache, False)
        return cache if taken and self._log.complaints == before else None

    def _drop(self, path: Path) -> None:
        if self._pinned:
            raise Ends(Failed("timing_cache_unusable", "The timing cache is pinned, and the builder does not take it."))
        self._say(Log("warning", "The timing cache is damaged or of another builder: it is dropped and begun anew."))
        with suppress(OSError, Timeout), self._lock(path):
            if self._read(path) == self._taken:  # else another child has begun a new one already
                path.unlink(missing_ok=True)
        self._taken = b""

    def _allow_no_miss(self) -> None:
        flag = self._trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS
        self._config.set_flag(flag)
        same("timing_cache", "pinned", "pinned" if self._config.get_flag(flag) else "open")

    def _save(self, path: Path) -> int:
        """Put back what is there now and what was added. Returns its size; an error costs the cache, not the build."""
        try:
            with self._lock(path):
                there = self._read(path)
                if there not in (b"", self._taken):
                    self._take_in(there)
                content = bytes(self._cache.serialize() or b"")
                if content not in (b"", there):
                    _replace(path, content)
        except (OSError, Timeout) as error:
            why = "another build holds it" if isinstance(error, Timeout) else error.strerror or type(error).__name__
            self._say(Log("warning", f"The timing cache could not be saved: {why}."))
            return len(self._taken)
        return len(content)

    def _take_in(self, there: bytes) -> None:
        """Combine with what other builds have saved meanwhile, unless the builder objects."""
        before = self._log.complaints
        other = self._config.create_timing_cache(there)
        if other is not None and self._log.complaints == before:
            self._cache.combine(other, False)

    def _count(self) -> int:
        return len(self._cache.queryKeys())

    def _lock(self, path: Path) -> FileLock:
        return FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_S, mode=0o600, preserve_lock_file=True)


def _replace(path: Path, content: bytes) -> None:
    """Only the holder of the lock writes, so one temporary name is enough."""
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)

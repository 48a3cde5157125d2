"""Where one process makes things before they are seen: a folder of its own, under a lock that it holds for life.

A folder whose lock is free has no owner any more, however it died, and may be swept. Owner ids are never used twice,
so nobody comes back to a swept folder. Lock files stay: removing one that is held would let a second holder in.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from app.errors import StoreUnusable
from app.store.disk import PLAIN_ID, discard, disk_errors, plain

LOCK_WAIT = 10.0  # seconds; a free lock is only ever held for the moment in which another process looks at it


class Upload:
    """A file of unknown content on its way in: hashed as it is written. Call `write` from a thread, with some MiB."""

    def __init__(self, folder: Path) -> None:
        fd, name = tempfile.mkstemp(prefix="upload-", dir=folder)
        self.path = Path(name)
        self.size = 0  # bytes
        self._sha = hashlib.sha256()
        self._whole = False
        self._file: BinaryIO = os.fdopen(fd, "wb")

    def write(self, batch: bytes | bytearray | memoryview) -> None:
        """Append and hash; `path` can be read up to here. Raises `StoreFull`, `StoreUnusable`; then only `abort` is left."""
        with disk_errors():
            self._file.write(batch)
            self._file.flush()  # the inspection reads it before it is finished
        self._sha.update(batch)
        self.size += len(batch)

    @property
    def digest(self) -> str:
        """Digest of what has been written so far."""
        return "sha256:" + self._sha.hexdigest()

    def finish(self) -> None:
        """Put every byte on the disk, for reading only. Once that has failed it is never taken for done."""
        if self._whole:
            return
        if self._file.closed:
            raise StoreUnusable("an earlier write of this upload failed")
        with disk_errors(), self._file as file:
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            os.fsync(file.fileno())
        self._whole = True

    def abort(self) -> None:
        """Forget the file. Harmless when repeated, and after the upload was put away."""
        with suppress(OSError):  # bytes that did not fit are still in its buffer
            self._file.close()
        with suppress(OSError):  # on a disk that cannot be written it stays until this process's folder is swept
            self.path.unlink(missing_ok=True)


class Staging:
    """This process's folder under `root`, from `open` to `close`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._owner: str | None = None
        self._lock: FileLock | None = None
        self._stuck: set[Path] = set()  # folders that the disk would not let go

    def open(self, owner: str) -> None:
        """Take `owner`'s lock and make its folder. Raises `StoreUnusable`, also when another process bears that id."""
        assert self._lock is None, "opened twice"
        lock = self._lock_of(owner)
        with disk_errors():
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=LOCK_WAIT)
            except Timeout as held:
                raise StoreUnusable(f"another process stages as {owner}") from held
            (self._root / owner).mkdir(mode=0o700, exist_ok=True)
        self._owner, self._lock = owner, lock

    @property
    def folder(self) -> Path:
        assert self._owner is not None, "not open"
        return self._root / self._owner

    def alive(self, owner: str) -> bool:
        """Tell whether `owner` may still be running: only a free lock is a sure death.

        True also while another process is looking at the same lock, and for one that never staged here: it may do so
        in another store.
        """
        if owner == self._owner or not (self._root / f"{plain(owner)}.lock").exists():
            return True
        lock = self._lock_of(owner)
        try:
            with lock.acquire(blocking=False):
                return False
        except Timeout:
            return True

    def sweep(self) -> list[str]:
        """Remove what dead owners left, and return their ids. A live owner's folder is never touched."""
        swept = []
        with disk_errors():
            for folder in [f for f in self._root.iterdir() if f.is_dir() and PLAIN_ID.fullmatch(f.name)]:
                if folder.name == self._owner:
                    continue
                try:
                    with self._lock_of(folder.name).acquire(blocking=False):
                        discard(folder)
                except Timeout:
                    continue
                swept.append(folder.name)
        return swept

    def scratch(self, name: str) -> Path:
        """Return a fresh folder that only this user may enter; `name` is the start of its own."""
        for folder in list(self._stuck):
            self.discard(folder)
        with disk_errors():
            return Path(tempfile.mkdtemp(prefix=f"{plain(name)}.", dir=self.folder))  # 0700 by itself

    def discard(self, folder: Path) -> None:
        """Remove a scratch folder; one that stays because the disk cannot be written goes before the next is made."""
        discard(folder)
        (self._stuck.add if folder.exists() else self._stuck.discard)(folder)

    def close(self) -> None:
        if self._lock is not None:
            discard(self.folder)
            self._lock.release()
            self._lock = self._owner = None

    def _lock_of(self, owner: str) -> FileLock:
        # Threads share the hold, else releasing it from another thread than the one that took it would do nothing.
        return FileLock(self._root / f"{plain(owner)}.lock", thread_local=False)

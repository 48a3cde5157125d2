"""Engines on this host: a folder that all its processes share, bounded in size, the least recently used goes first.

    <wish>/plan   <wish>/signature.json (if it was asked for)   <wish>/manifest.json   <wish>.lock

A wish is the digest of what was asked for, so that an engine is found without the service. The manifest is written last:
where it is, the plan is whole. Each wish has a lock, held while its engine is found, built and fetched.
"""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel

from trtforge.contract.engines import Manifest
from trtforge.transfer import digest_of

DEFAULT_BYTES = 20 << 30


@dataclass(frozen=True)
class Kept:
    """`raw`: the manifest as the service sent it, which is what `signature` is over."""

    path: Path
    manifest: Manifest
    raw: bytes = b""
    signature: bytes | None = None


class Cache:
    """`folder` defaults to `TRTFORGE_CACHE_DIR`, then to `trtforge` in `XDG_CACHE_HOME` or `~/.cache`.

    `most_bytes` (`TRTFORGE_CACHE_BYTES`, 20 GiB) bounds what lies here between uses; one engine may always stay.
    """

    def __init__(self, folder: Path | str | None = None, most_bytes: int | None = None) -> None:
        self.folder = Path(folder) if folder else _folder()
        self.most_bytes = most_bytes or int(os.environ.get("TRTFORGE_CACHE_BYTES", DEFAULT_BYTES))
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def lock(self, wish: str) -> FileLock:
        """Return the lock of a wish. It frees itself when its holder dies; the file stays, else two could hold it."""
        return FileLock(self.folder / f"{wish}.lock", thread_local=False)

    def find(self, wish: str) -> Kept | None:
        """Return the engine of a wish, every byte verified; one that is damaged is removed. None: it is not here."""
        place = self.folder / wish
        try:
            kept = read_kept(place)
        except FileNotFoundError:
            return None
        except ValueError:
            self._remove(wish)
            return None
        os.utime(place / "manifest.json")  # used now
        return kept

    def plan_of(self, wish: str) -> Path:
        """Return where the plan of a wish is to be put, before `keep`."""
        place = self.folder / wish
        place.mkdir(exist_ok=True)
        for name in ("manifest.json", "signature.json"):
            (place / name).unlink(missing_ok=True)
        return place / "plan"

    def keep(self, wish: str, manifest: Manifest, raw: bytes | None = None, signature: bytes | None = None) -> Kept:
        """Mark a plan that was put and verified as whole, then make room. Only under the wish's lock."""
        place, raw = self.folder / wish, raw or manifest.model_dump_json().encode()
        if signature:
            write_whole(place / "signature.json", signature)
        write_whole(place / "manifest.json", raw)
        self._make_room(wish)
        return Kept(place / "plan", manifest, raw, signature)

    def _make_room(self, but: str) -> None:
        """Remove least recently used engines until the rest fits. Whoever has a removed plan open keeps it."""
        found = sorted(_used(place) for place in self.folder.iterdir() if place.is_dir())
        size = sum(one[1] for one in found)
        for _, bytes_there, wish in found:
            if size <= self.most_bytes:
                return
            if wish == but:
                continue
            with suppress(Timeout), self.lock(wish).acquire(blocking=False):
                self._remove(wish)
                size -= bytes_there

    def _remove(self, wish: str) -> None:
        (self.folder / wish / "manifest.json").unlink(missing_ok=True)  # first: what has no marker is not there
        shutil.rmtree(self.folder / wish, ignore_errors=True)


def read_kept(place: Path) -> Kept:
    """Return the engine in a folder, every byte of its plan verified. Raises `FileNotFoundError`, `ValueError`."""
    raw = (place / "manifest.json").read_bytes()
    manifest = Manifest.model_validate_json(raw)  # its errors are values' errors
    if digest_of(place / "plan") != manifest.plan.digest:
        raise ValueError("damaged")
    with suppress(FileNotFoundError):
        return Kept(place / "plan", manifest, raw, (place / "signature.json").read_bytes())
    return Kept(place / "plan", manifest, raw)


def write_whole(goal: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, over any of that name."""
    draft = goal.with_name(f"{goal.name}.new")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(goal)


def wish_of(**asked: BaseModel | str | None) -> str:
    """Return the name of what is asked for: the same fields, the same name."""
    plain = {
        k: v.model_dump(mode="json", exclude_none=True) if isinstance(v, BaseModel) else v for k, v in asked.items()
    }
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _used(place: Path) -> tuple[float, int, str]:
    """Return when an engine was used last, its bytes and its wish; what has no marker was never used."""
    size, used = 0, 0.0
    with suppress(FileNotFoundError):
        size = sum(file.stat().st_size for file in place.iterdir())
        used = (place / "manifest.json").stat().st_mtime
    return used, size, place.name


def _folder() -> Path:
    if named := os.environ.get("TRTFORGE_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trtforge"

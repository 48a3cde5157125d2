"""Read a tar while it comes in, believing nothing it says: only plain files under the names an archive of engines has.

Nothing is ever written under a name from the archive.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from tarfile import BLOCKSIZE, DIRTYPE, HeaderError, TarInfo

from app.builds.exporting import MANIFEST, PLAN, SIGNATURE
from app.errors import Refused

NAME = re.compile(rf"(?:\./)?([0-9a-f]{{64}})/({re.escape(MANIFEST)}|{re.escape(SIGNATURE)}|{PLAN})")
FOLDER = re.compile(r"\.|(?:\./)?[0-9a-f]{64}")  # as `tar c` of a folder writes them
MOST_PADDING = 1 << 20  # bytes behind the end; tar fills up to 10 KiB, or what it was told
MOST_TEXT = 8 << 20  # bytes of a manifest or a signature


@dataclass(frozen=True)
class Entry:
    """One file of one engine; `key` is what its folder claims."""

    key: str
    name: str
    size: int  # bytes


class Untar:
    """Walks through an archive. Read each entry whole (`text` or `content`) before the next."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body, self._ready = body, bytearray()
        self._seen: set[tuple[str, str]] = set()
        self._left = self._padding = 0

    async def next(self) -> Entry | None:
        """Return the next entry; None at the end. Raises `Refused`: archive_…"""
        while True:
            assert self._left == 0, "the entry before was not read"
            await self._take(self._padding)
            block = await self._take(BLOCKSIZE)
            if not any(block):
                return None
            if entry := self._entry(block):
                return entry

    async def finish(self) -> None:
        """Read what fills the last block up. Raises `Refused`: an engine after the end would be lost without a word."""
        left, piece = MOST_PADDING, bytes(self._ready)
        while piece:
            left -= len(piece)
            if left < 0 or any(piece):
                raise Refused("archive_malformed", "Something stands behind the end of the archive.")
            piece = await anext(self._body, b"")

    async def text(self, entry: Entry) -> bytes:
        """Return a small entry. Raises `Refused`."""
        if entry.size > MOST_TEXT:
            raise Refused("archive_malformed", f"{entry.name} has {entry.size} bytes; {MOST_TEXT} are the most.")
        return b"".join([piece async for piece in self.content()])

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the entry, as they come."""
        while self._left:
            if not self._ready:
                await self._more()
            piece = bytes(self._ready[: self._left])
            del self._ready[: len(piece)]
            self._left -= len(piece)
            yield piece

    def _entry(self, block: bytes) -> Entry | None:
        try:
            header = TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except HeaderError as error:
            raise Refused("archive_malformed", "A header in the archive is none of tar.") from error
        self._left, self._padding = 0, 0
        if header.type == DIRTYPE and FOLDER.fullmatch(header.name) and header.size == 0:
            return None
        if header.issym() or header.islnk() or header.isdev() or _leads_out(header.name):
            raise Refused("archive_unsafe", f"{header.name[:80]!r} is a link, a device, or leads elsewhere.")
        match = NAME.fullmatch(header.name)
        if not header.isreg() or match is None or header.size < 0:
            raise Refused("archive_malformed", f"{header.name[:80]!r} is no part of an engine.")
        entry = Entry(f"sha256:{match[1]}", match[2], header.size)
        if (entry.key, entry.name) in self._seen:
            raise Refused("archive_duplicate", f"{header.name!r} comes twice.")
        self._seen.add((entry.key, entry.name))
        self._left, self._padding = header.size, -header.size % BLOCKSIZE
        return entry

    async def _take(self, count: int) -> bytes:
        while len(self._ready) < count:
            await self._more()
        taken = bytes(self._ready[:count])
        del self._ready[:count]
        return taken

    async def _more(self) -> None:
        try:
            self._ready += await anext(self._body)
        except StopAsyncIteration:
            raise Refused("archive_truncated") from None


def _leads_out(name: str) -> bool:
    return name.startswith("/") or "\\" in name or ".." in name.split("/")

"""Take single files in, in as many parts as it takes: a part that was cut off is gone on with where it stopped.

Parts live in this process: a restart of the service begins them anew. Whole files are in the store for good.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass

from app.builds.parts import Parts, in_thread
from app.builds.room import lacks
from app.errors import Refused
from app.store.staging import Upload
from trtforge.contract.models import FileState

BATCH = 2 << 20  # bytes hashed and written per hop to a thread; each upload holds twice that at most
ADVICE = {  # what to do with a model that is larger than one file may be; protobuf itself ends at 2 GiB
    "MAX_MODEL_BYTES": "Keep its weights in files beside it (onnx.save with save_as_external_data), send each to "
    "`/v1/files` and name them in `POST /v1/models`; or ask the operator to raise the limit."
}
MOST_PARTS = 64  # unfinished files at once; of more the one that has waited longest is forgotten


@dataclass(frozen=True)
class Span:
    """Bytes `first` to `last` of a file of `size`, as Content-Range says it."""

    first: int
    last: int
    size: int


class Files:
    """Receives files by digest. One for the service."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._open: OrderedDict[str, Upload] = OrderedDict()
        self._writing: set[str] = set()

    async def state(self, digest: str) -> FileState | None:
        """Return how much of the file is here, None when nothing is."""
        size = await in_thread(lambda: self._parts.store.model_size(digest))
        if size is not None:
            return FileState(digest=digest, have=size, complete=True)
        upload = self._open.get(digest)
        return FileState(digest=digest, have=upload.size, complete=False) if upload else None

    async def receive(self, digest: str, body: AsyncIterator[bytes], span: Span | None, announced: int | None) -> bool:
        """Take in the file or one part of it; return whether it is new and whole now, see `state` for the rest.

        What came before a cut is kept. Raises `Refused`: upload_offset, too_large, store_full, upload_incomplete,
        digest_mismatch.
        """
        size = span.size if span else announced
        if await in_thread(lambda: self._parts.store.has_model(digest)):
            return False
        await check_room(self._parts, size or 0, self._parts.settings.max_file_bytes, "MAX_FILE_BYTES")
        if digest in self._writing:
            raise Refused("upload_offset", "Another request is sending this file.", retry_after=1)
        self._writing.add(digest)
        try:
            upload = await self._at(digest, span.first if span else 0)
            await self._write(upload, body, span.last + 1 if span else None)
            return await self._finish(digest, upload, size)
        finally:
            self._writing.discard(digest)

    async def _at(self, digest: str, offset: int) -> Upload:
        upload = self._open.get(digest)
        if offset == 0:
            if upload:
                await self._forget(digest)
            self._open[digest] = await in_thread(self._parts.store.begin_model)
            while len(self._open) > MOST_PARTS:
                await self._forget(next(known for known in self._open if known not in self._writing))
        elif upload is None or upload.size != offset:
            have = upload.size if upload else 0
            raise Refused("upload_offset", f"{have} bytes are here and the part begins at {offset}.", have=have)
        self._open.move_to_end(digest)
        return self._open[digest]

    async def _write(self, upload: Upload, body: AsyncIterator[bytes], end: int | None) -> None:
        try:
            await write(self._parts, upload, body, self._parts.settings.max_file_bytes, "MAX_FILE_BYTES", end)
        except Refused as refused:
            if refused.code != "upload_incomplete":
                raise
            raise Refused("upload_incomplete", f"{upload.size} bytes are here; go on from there.") from refused

    async def _finish(self, digest: str, upload: Upload, size: int | None) -> bool:
        if size is not None and upload.size < size:
            return False
        if upload.digest != digest:
            await self._forget(digest)
            raise Refused("digest_mismatch", f"The bytes are {upload.digest}, not {digest}.", digest=upload.digest)
        await in_thread(lambda: self._parts.store.put_model(upload, digest))
        self._open.pop(digest, None)
        return True

    async def _forget(self, digest: str) -> None:
        if upload := self._open.pop(digest, None):
            await in_thread(upload.abort)


async def check_room(parts: Parts, size: int, limit: int, setting: str, here: int = 0) -> None:
    """Refuse what is larger than `limit`, or than the disk or the quota has room for; `here` bytes of it are written."""
    if size > limit:
        raise Refused(
            "too_large", f"It may have {limit} bytes (TRTFORGE_{setting}).", remedy=ADVICE.get(setting), limit=limit
        )
    if why := await in_thread(lambda: lacks(parts, size, here)):
        raise Refused("store_full", why)


async def write(
    parts: Parts, upload: Upload, body: AsyncIterator[bytes], limit: int, setting: str, end: int | None = None
) -> None:
    """Append a body in batches, each within the limits; what came is written even when the rest does not come.

    `end`: where the upload must not go on. Raises `Refused`.
    """
    batch = bytearray()
    try:
        async for chunk in body:
            batch += chunk
            if len(batch) >= BATCH:
                await _append(parts, upload, batch, limit, setting, end)
    finally:
        await asyncio.shield(_append(parts, upload, batch, limit, setting, end))


async def _append(parts: Parts, upload: Upload, batch: bytearray, limit: int, setting: str, end: int | None) -> None:
    whole = upload.size + len(batch)
    if end is not None and whole > end:
        batch.clear()
        raise Refused("upload_offset", "The part is longer than its Content-Range says.", have=upload.size)
    ready = bytes(batch)
    batch.clear()
    await check_room(parts, whole, limit, setting, here=upload.size)
    await in_thread(lambda: upload.write(ready))
    parts.metrics.uploaded(len(ready))

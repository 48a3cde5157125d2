"""Take a model in: streamed to staging and hashed on the way, inspected once in a child, only then visible."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from app.builds.parts import Parts, in_thread
from app.builds.preflight import preflight
from app.db import models
from app.errors import Refused
from app.store.staging import Upload
from app.worker import inspection
from app.worker.messages import Refused as NoModel
from trtforge.contract.failures import CODES
from trtforge.contract.models import Inspection, Model, Preflight, PreflightAsk

BATCH = 4 << 20  # bytes hashed and written per hop to a thread
RETRY_AFTER = 5  # seconds until an upload that failed by no fault of the model may be tried again
INSPECTIONS = 2  # children at once: each may take a core and as much memory as the model


class Uploads:
    """Receives models. One for the service, so that inspections are bounded."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._inspecting = asyncio.Semaphore(INSPECTIONS)

    async def receive(self, digest: str, body: AsyncIterator[bytes], announced: int | None) -> tuple[Model, bool]:
        """Return the model and whether it is new.

        `announced`: bytes the client said it would send. Raises `Refused`: too_large, store_full, upload_incomplete,
        digest_mismatch, or what the inspection says. Nothing is kept then.
        """
        self._check_room(announced or 0)
        async with self._staged() as upload:
            await self._write(upload, body)
            if announced is not None and upload.size != announced:
                raise Refused("upload_incomplete", f"{upload.size} of {announced} bytes came.")
            if upload.digest != digest:
                raise Refused("digest_mismatch", f"The bytes are {upload.digest}, not {digest}.", digest=upload.digest)
            if known := await in_thread(lambda: self._known(digest)):
                return known, False
            found = await self._inspect(upload.path)
            return await in_thread(lambda: self._keep(upload, digest, found))

    async def preflight(self, digest: str, asked: PreflightAsk) -> Preflight:
        """Say what a build would fail on; as many at once as inspections. Raises `Refused`: not_found, target_…"""
        async with self._inspecting:
            return await preflight(self._parts, digest, asked)

    def _check_room(self, size: int) -> None:
        limit, free = self._parts.settings.max_model_bytes, self._parts.store.free_bytes()
        if size > limit:
            raise Refused("too_large", f"A model may have {limit} bytes (TRTFORGE_MAX_MODEL_BYTES).", limit=limit)
        if free - size < self._parts.settings.min_free_bytes:
            raise Refused("store_full", f"{free} bytes are free (TRTFORGE_MIN_FREE_BYTES keeps some).")

    @asynccontextmanager
    async def _staged(self) -> AsyncIterator[Upload]:
        upload = await in_thread(self._parts.store.begin_model)
        try:
            yield upload
        finally:
            await asyncio.shield(in_thread(upload.abort))  # harmless once it is put away

    async def _write(self, upload: Upload, body: AsyncIterator[bytes]) -> None:
        batch = bytearray()
        async for chunk in body:
            batch += chunk
            if len(batch) >= BATCH:
                self._check_room(upload.size + len(batch))
                await in_thread(_writing(upload, bytes(batch)))
                batch.clear()
        self._check_room(upload.size + len(batch))
        await in_thread(_writing(upload, bytes(batch)))

    def _known(self, digest: str) -> Model | None:
        if not self._parts.store.has_model(digest):
            return None
        with self._parts.database.read() as tx:
            return models.find(tx, digest)

    async def _inspect(self, path: Path) -> Inspection:
        settings = self._parts.settings
        async with self._inspecting:
            folder = await in_thread(lambda: self._parts.store.scratch("inspect"))
            try:
                answer = await inspection.inspect(path, folder, settings.inspect_timeout_s)
            finally:
                await in_thread(lambda: self._parts.store.discard(folder))
        if isinstance(answer, NoModel):
            again = RETRY_AFTER if CODES[answer.code].retryable else None
            raise Refused(answer.code, answer.message, retry_after=again)
        return Inspection.model_validate(answer.inspection)

    def _keep(self, upload: Upload, digest: str, found: Inspection) -> tuple[Model, bool]:
        self._parts.store.put_model(upload, digest)
        with self._parts.database.write() as tx:
            new = models.add(tx, digest, upload.size, "model.onnx", found, self._parts.now())
            model = models.find(tx, digest)
        assert model is not None
        return model, new


def _writing(upload: Upload, batch: bytes) -> Callable[[], None]:
    return lambda: upload.write(batch)

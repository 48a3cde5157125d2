"""Take a model in: streamed to staging and hashed on the way, inspected once in a child, only then visible."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.builds.files import Files, check_room, write
from app.builds.layout import GRAPH, TAKEN, is_here, lay_beside
from app.builds.parts import Parts, in_thread
from app.builds.preflight import preflight
from app.db import models
from app.domain.digests import digest_of_files
from app.errors import Refused, trouble
from app.intake.names import is_plain
from app.store.staging import Upload
from app.worker import inspection
from app.worker.messages import Refused as NoModel
from trtforge.contract.models import FilesAsk, Inspection, Model, ModelFile, Preflight, PreflightAsk

INSPECTIONS = 2  # children at once: each may take a core and as much memory as the model


class Uploads:
    """Receives models. One for the service, so that inspections are bounded."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._inspecting = asyncio.Semaphore(INSPECTIONS)
        self.files = Files(parts)

    async def receive(self, digest: str, body: AsyncIterator[bytes], announced: int | None) -> tuple[Model, bool]:
        """Return the model of one self-contained file and whether it is new.

        `announced`: bytes the client said it would send. Raises `Refused`: too_large, store_full, upload_incomplete,
        digest_mismatch, or what the inspection says. Nothing is kept then.
        """
        limit = self._parts.settings.max_model_bytes
        await check_room(self._parts, announced or 0, limit, "MAX_MODEL_BYTES")
        async with self._staged() as upload:
            await write(self._parts, upload, body, limit, "MAX_MODEL_BYTES")
            if announced is not None and upload.size != announced:
                raise Refused("upload_incomplete", f"{upload.size} of {announced} bytes came.")
            if upload.digest != digest:
                raise Refused("digest_mismatch", f"The bytes are {upload.digest}, not {digest}.", digest=upload.digest)
            if known := await in_thread(lambda: self._known(digest)):
                return known, False
            found = await self._inspect(upload.path, ())
            await in_thread(lambda: self._parts.store.put_model(upload, digest))
            file = ModelFile(name=GRAPH, digest=digest, size=upload.size)
            return await in_thread(lambda: self._keep(digest, GRAPH, (file,), found))

    async def assemble(self, asked: FilesAsk) -> tuple[Model, bool]:
        """Return the model made of files that are here, and whether it is new.

        Raises `Refused`: invalid_request, external_data_unsafe, files_missing, or what the inspection says.
        """
        self._check_names(asked)
        files = tuple(ModelFile(**file.model_dump()) for file in asked.files)
        await in_thread(lambda: self._check_files(files))
        digest = digest_of_files(files)
        if known := await in_thread(lambda: self._known(digest)):
            return known, False
        graph = next(file for file in files if file.name == asked.graph)
        beside = tuple(file for file in files if file is not graph)
        found = await self._inspect(self._parts.store.open_model(graph.digest), beside)
        return await in_thread(lambda: self._keep(digest, asked.graph, files, found))

    async def preflight(self, digest: str, asked: PreflightAsk) -> Preflight:
        """Say what a build would fail on; as many at once as inspections. Raises `Refused`: not_found, target_…"""
        async with self._inspecting:
            return await preflight(self._parts, digest, asked)

    @asynccontextmanager
    async def _staged(self) -> AsyncIterator[Upload]:
        upload = await in_thread(self._parts.store.begin_model)
        try:
            yield upload
        finally:
            await asyncio.shield(in_thread(upload.abort))  # harmless once it is put away

    def _check_names(self, asked: FilesAsk) -> None:
        names, most = [file.name for file in asked.files], self._parts.settings.max_model_files
        if len(names) > most:
            raise Refused("too_large", f"A model may have {most} files (TRTFORGE_MAX_MODEL_FILES).", limit=most)
        for name in names:
            if not is_plain(name) or (name in TAKEN and name != asked.graph):
                raise Refused("external_data_unsafe", f"{name[:80]!r} cannot be the name of a file beside the graph.")
        if len(set(names)) < len(names) or asked.graph not in names:
            raise Refused("invalid_request", "Each name must come once, and `graph` must be one of them.")

    def _check_files(self, files: tuple[ModelFile, ...]) -> None:
        sizes = {file: self._parts.store.model_size(file.digest) for file in files}
        missing = [file for file, size in sizes.items() if size is None]
        if missing:
            errors = tuple(
                trouble("files_missing", f"{f.name} is not here.", file=f.name, digest=f.digest) for f in missing
            )
            raise Refused("files_missing", f"{len(missing)} of {len(files)} files are not here.", errors=errors)
        for file, size in sizes.items():
            if size != file.size:
                raise Refused("invalid_request", f"{file.name} has {size} bytes, not {file.size}.")

    def _known(self, digest: str) -> Model | None:
        with self._parts.database.read() as tx:
            known = models.find(tx, digest)
        return known if known and is_here(self._parts.store, known) else None

    async def _inspect(self, graph: Path, beside: tuple[ModelFile, ...]) -> Inspection:
        """Have a child read `graph`, with the files `beside` it."""
        settings, store = self._parts.settings, self._parts.store
        async with self._inspecting:
            folder = await in_thread(lambda: store.scratch("inspect"))
            try:
                await in_thread(lambda: lay_beside(store, beside, folder))
                sizes = {file.name: file.size for file in beside}
                answer = await inspection.inspect(graph, folder, settings.inspect_timeout_s, sizes)
            finally:
                await in_thread(lambda: store.discard(folder))
        if isinstance(answer, NoModel):
            if answer.files:
                raise Refused(answer.code, answer.message, files=answer.files)
            raise Refused(answer.code, answer.message)
        return Inspection.model_validate(answer.inspection)

    def _keep(self, digest: str, graph: str, files: tuple[ModelFile, ...], found: Inspection) -> tuple[Model, bool]:
        at = self._parts.now()
        size, told = sum(file.size for file in files), found.model_dump()
        model = Model(digest=digest, size=size, graph=graph, files=files, created_at=at, **told)
        self._parts.store.put_inspection(model)  # before the row, so that no model is without it
        with self._parts.database.write() as tx:
            new = models.add(tx, digest, graph, files, found, at)
            kept = models.find(tx, digest)
        assert kept is not None
        self._check_files(files)  # one may have gone before a model had it
        return kept, new

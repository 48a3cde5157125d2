"""Archives of engines, good ones and others, and services that take them in."""

import io
import tarfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.api.tar import TarResponse
from app.builds.exporting import archive
from app.builds.importing import Importing
from app.builds.parts import Parts
from app.builds.signing import signer_of
from app.settings import Settings
from tests.api.seeded import Seed, parts_of, seed
from trtforge.contract.artifacts import Imported
from trtforge.contract.engines import Manifest
from trtforge.signature import new_key

PRIVATE, PUBLIC = new_key()
OTHER_PRIVATE, OTHER_PUBLIC = new_key()
HEAD = b"vtrt"  # of a plan of TensorRT for RTX

File = tuple[str, bytes]


@contextmanager
def service(folder: Path, url: str | None = None, **settings: Any) -> Iterator[Parts]:
    """Yield the parts of a service with these settings."""
    parts = parts_of(folder, url)
    wanted = Settings(data_dir=folder, lock_dir=folder.parent / f"{folder.name}-locks", **settings)
    try:
        yield replace(parts, settings=wanted, signer=signer_of(wanted))
    finally:
        parts.store.close()
        parts.database.close()


async def exported(parts: Parts, keys: Sequence[str]) -> bytes:
    return b"".join([bytes(piece) async for piece in TarResponse(archive(parts, keys), "engines.tar").body_iterator])  # type: ignore[arg-type]


async def taken(parts: Parts, content: bytes, allow_unsigned: bool = False, piece: int = 1000) -> Imported:
    """Import an archive that comes in small pieces."""

    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(content), piece):
            yield content[start : start + piece]

    return await Importing(parts, allow_unsigned).run(body())


def made(parts: Parts, *seeds: Seed, **other: Any) -> list[Manifest]:
    return seed(parts, seeds, **other)


def files_of(content: bytes) -> list[File]:
    """Return what an archive holds, as any reader of tar sees it."""
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return [(one.name, tar.extractfile(one).read()) for one in tar.getmembers()]  # type: ignore[union-attr]


def tar_of(files: Sequence[File | tarfile.TarInfo]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for one in files:
            if isinstance(one, tarfile.TarInfo):
                tar.addfile(one)
                continue
            header = tarfile.TarInfo(one[0])
            header.size = len(one[1])
            tar.addfile(header, io.BytesIO(one[1]))
    return out.getvalue()

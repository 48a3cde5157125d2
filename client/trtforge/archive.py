"""Archives of engines as they go up: a file as it is, or a folder of `trtforge export --to` made into one."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_PIECE = 1 << 20
_ORDER = ("manifest.json", "signature.json", "plan")  # which a service checks before it takes the bytes
_KEY = re.compile(r"[0-9a-f]{64}")


def pieces(source: Path | BinaryIO) -> Iterator[bytes]:
    """Yield an archive. Raises `OSError`."""
    if not isinstance(source, Path):
        yield from _read(source)
    elif source.is_dir():
        yield from _of_folder(source)
    else:
        with source.open("rb") as file:
            yield from _read(file)


def _of_folder(folder: Path) -> Iterator[bytes]:
    for place in sorted(one for one in folder.iterdir() if _KEY.fullmatch(one.name)):
        for path in (place / name for name in _ORDER if (place / name).is_file()):
            header = tarfile.TarInfo(f"{place.name}/{path.name}")
            with path.open("rb") as file:
                header.size = path.stat().st_size
                yield header.tobuf(tarfile.GNU_FORMAT)
                yield from _read(file)
            yield bytes(-header.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _read(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece

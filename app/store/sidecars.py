"""JSON files that appear whole or not at all, and what lies in a folder of files that are named by their digest."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Stored:
    """A file that is named by its digest."""

    digest: str
    size: int  # bytes
    modified: float  # seconds since the epoch


def stored_in(folder: Path) -> Iterator[Stored]:
    """Every file of models or plans; what vanishes meanwhile is left out, and what is not named by a digest is not ours."""
    for path in _below(folder):
        if not _HEX.fullmatch(path.name):
            continue
        try:
            found = path.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield Stored(f"sha256:{path.name}", found.st_size, found.st_mtime)


def named_in(folder: Path, ending: str) -> Iterator[str]:
    """The hex digits that files with this ending are named by."""
    names = (path.name.removesuffix(ending) for path in _below(folder) if path.name.endswith(ending))
    return (name for name in names if _HEX.fullmatch(name))


def _below(folder: Path) -> Iterator[Path]:
    """Files two levels down; by `scandir`, which asks the kernel once per folder and not once per file."""
    for part in _entries(folder):
        if part.is_dir(follow_symlinks=False):
            yield from (Path(entry.path) for entry in _entries(part.path))


def _entries(folder: str | Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []

"""JSON files that appear whole or not at all, and what lies in a folder of files that are named by their digest."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stored:
    """A file that is named by its digest."""

    digest: str
    size: int  # bytes
    modified: float  # seconds since the epoch


def stored_in(folder: Path) -> Iterator[Stored]:
    """Every file of models or plans; what vanishes meanwhile is left out."""
    for path in _below(folder):
        try:
            found = path.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield Stored(f"sha256:{path.name}", found.st_size, found.st_mtime)


def named_in(folder: Path, ending: str) -> Iterator[str]:
    """The names of files with this ending, without it."""
    return (path.name.removesuffix(ending) for path in _below(folder) if path.name.endswith(ending))


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

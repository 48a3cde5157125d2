"""Words of native code made fit to be stored and shown: no folder of this machine, no control characters, bounded."""

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class Scrubber:
    """Takes known folders out of texts. Only known ones: names of layers look like absolute paths and have to stay."""

    def __init__(self, folders: Iterable[str]) -> None:
        known = sorted({f.rstrip("/") for f in folders if f.startswith("/")} - {""}, key=len, reverse=True)
        self._folders = re.compile("(?:" + "|".join(map(re.escape, known)) + r")(?:/|(?![\w.-]))") if known else None

    def __call__(self, text: str, limit: int = 2000) -> str:
        """Return `text` with "folder/name" as "name", at most `limit` characters."""
        clean = _CONTROL.sub(" ", text)
        return (self._folders.sub("", clean) if self._folders else clean)[:limit]


def scrubber_here() -> Scrubber:
    """Return one that knows the working folder, the temporary one, the interpreter's, our own, and what imports are looked up in."""
    cwd = Path.cwd()
    ours = Path(__file__).resolve().parents[2]
    places = (cwd, cwd.resolve(), tempfile.gettempdir(), ours, sys.prefix, sys.base_prefix, os.environ.get("PWD", ""))
    return Scrubber(str(place) for place in (*places, *sys.path))

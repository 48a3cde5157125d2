"""The digest of a model that is more than one file."""

import hashlib
from collections.abc import Sequence

from trtforge.contract.models import ModelFile


def digest_of_files(files: Sequence[ModelFile]) -> str:
    """Return the sha256 of the lines `<hex>  <name>` sorted by name, as `sha256sum` prints them: every file counts."""
    ordered = sorted(files, key=lambda file: file.name)
    lines = "".join(f"{file.digest.removeprefix('sha256:')}  {file.name}\n" for file in ordered)
    return "sha256:" + hashlib.sha256(lines.encode()).hexdigest()

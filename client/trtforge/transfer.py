"""Bring a model up, hashed and sent as a stream."""

import hashlib
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from trtforge.connection import Connection
from trtforge.contract.models import Model
from trtforge.download import Moved
from trtforge.errors import ServiceError

_PIECE = 1 << 20
INSPECTION_S = 120.0  # the service answers an upload after it has read the graph once


def digest_of(path: Path) -> str:
    """Return `sha256:…` of a file, read as a stream."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def upload(connection: Connection, path: Path, moved: Moved | None = None) -> Model:
    """Return the model, sending its bytes only if need be. Raises `OSError` when the file cannot be read."""
    address = f"/v1/models/{digest_of(path)}"
    try:
        return Model.model_validate_json(connection.send("GET", address).content)
    except ServiceError as error:
        if error.problem.status != 404:
            raise
    return connection.persevere(lambda: _put(connection, address, path, moved))


def _put(connection: Connection, address: str, path: Path, moved: Moved | None) -> Model:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        content = _pieces(file, size, moved)
        answer = connection.send("PUT", address, content=content, headers=headers, read_s=INSPECTION_S)
    return Model.model_validate_json(answer.content)


def _pieces(file: BufferedReader, size: int, moved: Moved | None) -> Iterator[bytes]:
    sent = 0
    while sent < size and (piece := file.read(min(_PIECE, size - sent))):
        yield piece
        sent += len(piece)
        if moved:
            moved(sent, size)

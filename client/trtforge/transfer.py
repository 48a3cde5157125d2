"""Bring a model up, hashed and sent as a stream."""

import hashlib
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from trtforge.connection import Connection
from trtforge.contract.models import AskedFile, FilesAsk, Model
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
    try:
        return connection.persevere(lambda: _put(connection, address, path, moved))
    except ServiceError as error:
        beside = _beside_graph(path, error)
        if not beside:
            raise
    return _upload_files(connection, path, beside, moved)


def _beside_graph(path: Path, error: ServiceError) -> list[Path]:
    """Return the files that the service says the graph keeps weights in, if all of them lie beside it."""
    names = error.members.get("files") if error.code == "external_data_missing" else None
    if not isinstance(names, list) or not all(isinstance(name, str) and Path(name).name == name for name in names):
        return []
    files = [path.parent / name for name in names]
    return files if all(file.is_file() for file in files) else []


def _upload_files(connection: Connection, graph: Path, beside: list[Path], moved: Moved | None) -> Model:
    files = [_upload_file(connection, path, moved) for path in (graph, *beside)]
    body = FilesAsk(graph=graph.name, files=tuple(files)).model_dump_json()
    headers = {"Content-Type": "application/json"}
    answer = connection.insist("POST", "/v1/models", content=body, headers=headers, read_s=INSPECTION_S)
    return Model.model_validate_json(answer.content)


def _upload_file(connection: Connection, path: Path, moved: Moved | None) -> AskedFile:
    """Send a file from where the service has it; after a cut from where that left it."""
    file = AskedFile(name=path.name, digest=digest_of(path), size=path.stat().st_size)
    connection.persevere(lambda: _put_rest(connection, path, file, moved))
    return file


def _put_rest(connection: Connection, path: Path, file: AskedFile, moved: Moved | None) -> None:
    address = f"/v1/files/{file.digest}"
    have, complete = _have(connection, address)
    if complete:
        return
    with path.open("rb") as source:
        source.seek(have)
        headers = {"Content-Length": str(file.size - have), "Content-Type": "application/octet-stream"}
        if have:
            headers["Content-Range"] = f"bytes {have}-{file.size - 1}/{file.size}"
        content = _pieces(source, file.size, moved, have)
        connection.send("PUT", address, content=content, headers=headers, read_s=INSPECTION_S)


def _have(connection: Connection, address: str) -> tuple[int, bool]:
    try:
        headers = connection.send("HEAD", address).headers
    except ServiceError as error:
        if error.problem.status != 404:
            raise
        return 0, False
    return int(headers.get("Upload-Offset", "0")), headers.get("Upload-Complete") == "?1"


def _put(connection: Connection, address: str, path: Path, moved: Moved | None) -> Model:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        content = _pieces(file, size, moved)
        answer = connection.send("PUT", address, content=content, headers=headers, read_s=INSPECTION_S)
    return Model.model_validate_json(answer.content)


def _pieces(file: BufferedReader, size: int, moved: Moved | None, sent: int = 0) -> Iterator[bytes]:
    while sent < size and (piece := file.read(min(_PIECE, size - sent))):
        yield piece
        sent += len(piece)
        if moved:
            moved(sent, size)

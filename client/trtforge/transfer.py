"""Move bytes: a model up, a plan down. Hashed as streams; a plan is verified before it has its name."""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader
from pathlib import Path

from trtforge.connection import Connection, Patience
from trtforge.contract.engines import PlanRef
from trtforge.contract.models import AskedFile, FilesAsk, Model
from trtforge.errors import PlanMismatch, ServiceError, ServiceUnreachable

Moved = Callable[[int, int], None]  # bytes so far, bytes in all

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


def fetch(connection: Connection, address: str, plan: PlanRef, goal: Path, moved: Moved | None = None) -> None:
    """Put the verified plan at `goal`, whole or not at all; a cut is resumed where it happened.

    Raises `PlanMismatch` when the bytes are not `plan`'s, `OSError` when the folder takes no file.
    """
    with _beside(goal) as (file, part):
        _receive(connection, address, plan, file, moved)
        _verify(file, plan)
        os.fsync(file.fileno())
        part.replace(goal)
    _sync_folder(goal.parent)


@contextmanager
def _beside(goal: Path) -> Iterator[tuple[BufferedRandom, Path]]:
    """Open a new file in the goal's folder, so that renaming it is atomic; it is gone afterwards unless renamed."""
    part = goal.parent / f".{goal.name}.{secrets.token_hex(6)}.part"
    try:
        with part.open("xb+") as file:
            yield file, part
    finally:
        part.unlink(missing_ok=True)


def _receive(connection: Connection, address: str, plan: PlanRef, file: BufferedRandom, moved: Moved | None) -> None:
    patience = Patience(connection.patience_s)
    while (have := file.tell()) < plan.size:
        try:
            _receive_some(connection, address, plan, file, moved)
        except (ServiceError, ServiceUnreachable) as trouble:
            if file.tell() > have:
                patience.renew()
            if not connection.may_pass(trouble) or not patience.pause(getattr(trouble, "retry_after", None)):
                raise


def _receive_some(
    connection: Connection, address: str, plan: PlanRef, file: BufferedRandom, moved: Moved | None
) -> None:
    have = file.tell()
    tag = f'"{plan.digest}"'
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-", "If-Range": tag} if have else {})
    with connection.stream(address, headers=headers) as response:
        if response.headers.get("ETag", tag) != tag:
            raise PlanMismatch(plan.digest, response.headers["ETag"].strip('"'))
        if response.status_code != 206:
            file.seek(0)
            file.truncate()
        for piece in response.iter_raw():
            file.write(piece)
            if file.tell() > plan.size:
                raise PlanMismatch(plan.digest, f"longer than {plan.size} bytes")
            if moved:
                moved(file.tell(), plan.size)


def _verify(file: BufferedRandom, plan: PlanRef) -> None:
    file.seek(0)
    got = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if got != plan.digest:
        raise PlanMismatch(plan.digest, got)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

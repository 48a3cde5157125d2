"""Engines as things to carry about: fetched with their proof, exported, laid out for Triton, built again."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from uuid import uuid4

from trtforge import download
from trtforge.archive import pieces
from trtforge.cache import write_whole
from trtforge.connection import Connection
from trtforge.contract.artifacts import Imported
from trtforge.contract.builds import Submitted
from trtforge.contract.engines import Manifest
from trtforge.contract.provenance import SigningKeys
from trtforge.download import Moved
from trtforge.errors import ServiceError, ServiceUnreachable, TrtforgeError
from trtforge.signature import PublicKeys, SignatureRefused

KEPT_S = 600.0  # seconds a service may take for the last plan of an archive: it is hashed and flushed
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Proven:
    """A manifest as it was sent (`raw`) and its signature, checked if a public key was given."""

    manifest: Manifest
    raw: bytes
    signature: bytes | None


class Artifacts:
    """`client.artifacts`. Methods raise what those of `Client` raise, and `SignatureRefused`."""

    def __init__(self, connection: Connection, keys: PublicKeys | None) -> None:
        self._connection, self._keys = connection, keys

    def signature(self, engine_key: str) -> bytes:
        """Return the DSSE envelope about an engine. Raises `unsigned` when it has none."""
        return self._connection.send("GET", f"/v1/engines/{engine_key}/signature").content

    def signing_keys(self) -> SigningKeys:
        """Return the public keys the service signs with; whom to trust is not the service's to say."""
        return SigningKeys.model_validate_json(self._connection.send("GET", "/v1/signing-keys").content)

    def prove(self, engine_key: str, signed: bool = False) -> Proven:
        """Return the manifest, checked against the public keys if there are any; `signed` asks for the signature too.

        With keys it must be of the very engine that was asked for: others are signed as well.
        """
        raw = self._connection.send("GET", f"/v1/engines/{engine_key}").content
        signature = self._signature(engine_key) if signed or self._keys else None
        manifest = Manifest.model_validate_json(raw)
        if self._keys:
            self._keys.check(signature, raw)
            if manifest.engine_key != engine_key:
                raise SignatureRefused("signature_other_manifest", f"It is the manifest of {manifest.engine_key}.")
        return Proven(manifest, raw, signature)

    def fetch(self, engine_key: str, path: Path, progress: Moved | None = None, signed: bool = False) -> Proven:
        """Put the plan of an engine at `path`, verified, whole or not at all."""
        proven = self.prove(engine_key, signed)
        download.fetch(self._connection, f"/v1/engines/{engine_key}/plan", proven.manifest.plan, path, progress)
        return proven

    def export(self, keys: Sequence[str], out: BinaryIO) -> int:
        """Write an archive of engines and return its bytes. The same engines, the same archive.

        It is written as it comes; with public keys every engine is fetched and checked first.
        """
        if self._keys:
            with TemporaryDirectory(prefix="trtforge-export-") as folder:
                self.export_to(keys, Path(folder))
                return sum(out.write(piece) for piece in pieces(Path(folder)))
        written = 0
        with self._connection.stream("/v1/export", headers={}, params={"key": list(keys)}) as answer:
            announced = int(answer.headers.get("Content-Length", "-1"))
            for piece in answer.iter_raw():
                out.write(piece)
                written += len(piece)
        if announced not in (-1, written):
            raise ServiceUnreachable(self._connection.url, "the archive ended early")
        return written

    def export_to(self, keys: Sequence[str], folder: Path, progress: Moved | None = None) -> list[Path]:
        """Lay engines out in a folder for `TRTFORGE_ENGINE_PATH`; resumable, and again changes nothing."""
        return [self._lay_out(key, folder / key.removeprefix("sha256:"), progress) for key in keys]

    def triton(self, engine_key: str, folder: Path, name: str | None = None, progress: Moved | None = None) -> Path:
        """Lay an engine out in a model repository of Triton; return the model's folder in it.

        `name` is Triton's name for the model; by default the beginning of the key.
        """
        address, params = f"/v1/engines/{engine_key}/triton/config.pbtxt", {"name": name} if name else {}
        self.prove(engine_key)  # before a folder is made
        answer = self._connection.send("GET", address, params=params)
        place = folder / _plain(answer.headers.get("Model-Name", ""))
        (place / "1").mkdir(parents=True, exist_ok=True)
        self.fetch(engine_key, place / "1" / "model.plan", progress)
        write_whole(place / "config.pbtxt", answer.content)
        return place

    def rebuild(self, engine_key: str) -> Submitted:
        """Ask for the same build again, beside the engine, which stays as it is; its end tells what differs."""
        headers = {"Idempotency-Key": uuid4().hex}
        answer = self._connection.insist("POST", f"/v1/engines/{engine_key}/rebuild", headers=headers)
        return Submitted.model_validate_json(answer.content)

    def import_archive(self, source: Path | BinaryIO, allow_unsigned: bool = False) -> Imported:
        """Send an archive, or a folder of `export_to`, to a service that takes it in. Needs the scope `admin`."""
        params = {"allow_unsigned": "true"} if allow_unsigned else {}
        headers = {"Content-Type": "application/x-tar"}
        answer = self._connection.send(
            "POST", "/v1/import", content=pieces(source), headers=headers, params=params, read_s=KEPT_S
        )
        return Imported.model_validate_json(answer.content)

    def _lay_out(self, engine_key: str, place: Path, progress: Moved | None) -> Path:
        self.prove(engine_key)  # before a folder is made
        place.mkdir(parents=True, exist_ok=True)
        (place / "manifest.json").unlink(missing_ok=True)  # what lay here before counts no longer
        proven = self.fetch(engine_key, place / "plan", progress, signed=True)
        if proven.signature:
            write_whole(place / "signature.json", proven.signature)
        else:
            (place / "signature.json").unlink(missing_ok=True)
        write_whole(place / "manifest.json", proven.raw)
        return place

    def _signature(self, engine_key: str) -> bytes | None:
        try:
            return self.signature(engine_key)
        except ServiceError as error:
            if error.code != "unsigned":
                raise
            return None


def _plain(name: str) -> str:
    """Return a name that stays inside its folder, whatever a service says."""
    if not _NAME.fullmatch(name):
        raise TrtforgeError(f"{name!r} cannot be the name of a model's folder.")
    return name

"""A store in one folder of a disk.

    models/ab/<hex>   inspections/ab/<hex of the model>.json   plans/ab/<hex>   manifests/ab/<hex of the key>.json
    signatures/ab/<the same>.json
    logs/yz/<build>.log   locks/ab/<hex>.lock
    staging/<owner>/…   staging/<owner>.lock

Every visible name appears by one rename or link of a file that is already whole on the disk.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic

from pydantic import ValidationError

from app.errors import StoreUnusable
from app.store.disk import digest_of, disk_errors, drop, hex_of, link, move, plain, sync_folder
from app.store.plans import StagedPlan
from app.store.sidecars import Stored, named_in, stored_in
from app.store.staging import Staging, Upload
from trtforge.contract.engines import Manifest
from trtforge.contract.models import Model

KINDS = ("models", "inspections", "plans", "manifests", "signatures", "logs", "locks")
USED_FOR = 5.0  # seconds that a sum of sizes may be old: looking at every file takes a while


class LocalStore:
    """`Store` on a disk with hard links and POSIX renames; several processes may share the folder."""

    def __init__(self, root: Path) -> None:
        """Make the folders. Raises `StoreFull`, `StoreUnusable`."""
        self.root = root.resolve()
        self._staging = Staging(self.root / "staging")
        self._used: tuple[float, int] | None = None  # when, bytes
        self._using = Lock()
        with disk_errors():
            for kind in KINDS:
                (self.root / kind).mkdir(mode=0o700 if kind == "locks" else 0o777, parents=True, exist_ok=True)

    # ---- staging

    def open_staging(self, owner: str) -> None:
        self._staging.open(owner)

    def owner_alive(self, owner: str) -> bool:
        return self._staging.alive(owner)

    def sweep(self) -> list[str]:
        return self._staging.sweep()

    def scratch(self, name: str) -> Path:
        return self._staging.scratch(name)

    def discard(self, folder: Path) -> None:
        self._staging.discard(folder)

    def close(self) -> None:
        self._staging.close()

    # ---- models

    def begin_model(self) -> Upload:
        with disk_errors():
            return Upload(self._staging.folder)

    def put_model(self, upload: Upload, digest: str) -> None:
        if upload.digest != digest:
            raise ValueError(f"the upload is {upload.digest}, not {digest}")
        final = self._digest_path("models", digest)
        if not upload.path.exists() and final.exists():
            return
        upload.finish()
        with disk_errors():
            move(upload.path, final)

    def has_model(self, digest: str) -> bool:
        return self._digest_path("models", digest).is_file()

    def model_size(self, digest: str) -> int | None:
        try:
            return self.open_model(digest).stat().st_size
        except FileNotFoundError:
            return None

    def open_model(self, digest: str) -> Path:
        return self._digest_path("models", digest)

    def link_model(self, digest: str, path: Path) -> None:
        link(self.open_model(digest), path)

    def stored_models(self) -> Iterator[Stored]:
        return stored_in(self.root / "models")

    def verify_model(self, digest: str) -> bool:
        with disk_errors():
            return digest_of(self.open_model(digest)) == digest

    def set_model_aside(self, digest: str) -> Path | None:
        return self._set_aside(self.open_model(digest))

    def put_model_back(self, digest: str, aside: Path) -> None:
        self._put_back(self.open_model(digest), aside)

    def put_inspection(self, model: Model) -> None:
        with disk_errors():
            staged = self._written("inspection-", model.model_dump_json().encode())
            try:
                move(staged, self._inspection_path(model.digest))
            finally:
                staged.unlink(missing_ok=True)

    def inspection(self, digest: str) -> Model | None:
        with disk_errors():
            try:
                found = Model.model_validate_json(self._inspection_path(digest).read_bytes())
            except (FileNotFoundError, ValidationError):
                return None
        return found if found.digest == digest else None

    def inspection_digests(self) -> Iterator[str]:
        return (f"sha256:{name}" for name in named_in(self.root / "inspections", ".json"))

    def remove_inspection(self, digest: str) -> None:
        with disk_errors():
            drop(self._inspection_path(digest))

    # ---- plans

    def take_plan(self, path: Path) -> StagedPlan:
        return StagedPlan(path)

    def put_plan(self, staged: StagedPlan) -> None:
        staged.rename(self.open_plan(staged.digest))

    def has_plan(self, digest: str, size: int) -> bool:
        try:
            found = self.open_plan(digest).lstat()
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == size

    def verify_plan(self, digest: str) -> bool:
        with disk_errors():
            return digest_of(self.open_plan(digest)) == digest

    def open_plan(self, digest: str) -> Path:
        return self._digest_path("plans", digest)

    def link_plan(self, digest: str, path: Path) -> None:
        link(self.open_plan(digest), path)

    def remove_plan(self, digest: str) -> None:
        with disk_errors():
            drop(self.open_plan(digest))

    def set_plan_aside(self, digest: str) -> Path | None:
        return self._set_aside(self.open_plan(digest))

    def put_plan_back(self, digest: str, aside: Path) -> None:
        self._put_back(self.open_plan(digest), aside)

    def stored_plans(self) -> Iterator[Stored]:
        return stored_in(self.root / "plans")

    # ---- manifests

    def put_manifest(self, manifest: Manifest) -> Manifest:
        key = manifest.engine_key
        final = self._manifest_path(key)
        with disk_errors():
            staged = self._written("manifest-", manifest.model_dump_json(indent=2).encode() + b"\n")
            try:
                final.parent.mkdir(exist_ok=True)
                try:
                    final.hardlink_to(staged)
                except FileExistsError:
                    if self.manifest(key) is None:  # damaged: the caller holds the key's lock, so nobody else mends it
                        staged.rename(final)
                sync_folder(final.parent)
            finally:
                staged.unlink(missing_ok=True)
        if (kept := self.manifest(key)) is None:
            raise StoreUnusable("a manifest that was just written cannot be read")
        return kept

    def manifest(self, key: str) -> Manifest | None:
        with disk_errors():
            try:
                found = Manifest.model_validate_json(self._manifest_path(key).read_bytes())
            except (FileNotFoundError, ValidationError):
                return None
        return found if found.engine_key == key else None

    def damaged(self, key: str) -> bool:
        return self._manifest_path(key).exists() and self.manifest(key) is None

    def manifests(self) -> Iterator[Manifest]:
        for key in self.manifest_keys():
            if (found := self.manifest(key)) is not None:
                yield found

    def manifest_keys(self) -> Iterator[str]:
        return (f"sha256:{name}" for name in named_in(self.root / "manifests", ".json"))

    def remove_manifest(self, key: str) -> None:
        with disk_errors():
            drop(self._manifest_path(key))
            drop(self._signature_path(key))  # after it: a manifest without its signature would be an unsigned engine

    # ---- signatures

    def put_signature(self, key: str, envelope: bytes) -> None:
        with disk_errors():
            staged = self._written("signature-", envelope)
            try:
                move(staged, self._signature_path(key))
            finally:
                staged.unlink(missing_ok=True)

    def signature(self, key: str) -> bytes | None:
        with disk_errors():
            try:
                return self._signature_path(key).read_bytes()
            except FileNotFoundError:
                return None

    def signature_keys(self) -> Iterator[str]:
        return (f"sha256:{name}" for name in named_in(self.root / "signatures", ".json"))

    def remove_signature(self, key: str) -> None:
        with disk_errors():
            drop(self._signature_path(key))

    # ---- logs

    def append_log(self, build_id: str, text: bytes) -> None:
        path = self._log_path(build_id)
        with disk_errors():
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as file:
                file.write(text)

    def log(self, build_id: str) -> bytes | None:
        try:
            return self._log_path(build_id).read_bytes()
        except FileNotFoundError:
            return None

    def log_size(self, build_id: str) -> int:
        try:
            return self._log_path(build_id).stat().st_size
        except FileNotFoundError:
            return 0

    def remove_log(self, build_id: str) -> None:
        with disk_errors():
            drop(self._log_path(build_id))

    # ---- the store itself

    def key_lock(self, key: str) -> Path:
        path = self._digest_path("locks", key).with_suffix(".lock")
        with disk_errors():
            path.parent.mkdir(mode=0o700, exist_ok=True)
        return path

    def gc_lock(self) -> Path:
        return self.root / "locks" / "gc.lock"

    def used_bytes(self, fresh: bool = True) -> int:
        with self._using:  # many who ask at once share a look
            if fresh or self._used is None or monotonic() - self._used[0] > USED_FOR:
                with disk_errors():
                    sizes = (one.size for found in (self.stored_models(), self.stored_plans()) for one in found)
                    self._used = monotonic(), sum(sizes)
            return self._used[1]

    def probe(self) -> None:
        with disk_errors():
            for kind in KINDS:
                (self.root / kind).stat()
            staged = self._written("probe-", b"probe")
            final, linked = staged.with_suffix(".renamed"), staged.with_suffix(".linked")
            try:
                linked.hardlink_to(staged)
                move(staged, final)
            finally:
                for path in (staged, final, linked):
                    path.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        with disk_errors():
            return shutil.disk_usage(self.root).free

    def _written(self, prefix: str, content: bytes) -> Path:
        """Return a new file of ours in staging with `content` on the disk; none is left when that fails."""
        fd, name = tempfile.mkstemp(prefix=prefix, dir=self._staging.folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(fd, 0o444)
                os.fsync(fd)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return Path(name)

    def _set_aside(self, final: Path) -> Path | None:
        aside = self.scratch("aside") / final.name
        with disk_errors():
            try:
                move(final, aside)
            except FileNotFoundError:
                self.discard(aside.parent)
                return None
        return aside

    def _put_back(self, final: Path, aside: Path) -> None:
        with disk_errors():
            with suppress(FileExistsError):
                final.hardlink_to(aside)
            sync_folder(final.parent)
            aside.unlink()  # a stored file has one name
            self.discard(aside.parent)

    def _digest_path(self, kind: str, digest: str) -> Path:
        name = hex_of(digest)
        return self.root / kind / name[:2] / name

    def _manifest_path(self, key: str) -> Path:
        return self._digest_path("manifests", key).with_suffix(".json")

    def _inspection_path(self, digest: str) -> Path:
        return self._digest_path("inspections", digest).with_suffix(".json")

    def _signature_path(self, key: str) -> Path:
        return self._digest_path("signatures", key).with_suffix(".json")

    def _log_path(self, build_id: str) -> Path:
        name = plain(build_id)
        return self.root / "logs" / name[-2:].lower() / f"{name}.log"  # ids may start with the time: the end spreads

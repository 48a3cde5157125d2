"""What a store promises, whatever it is made of. All calls block: make them from a thread."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from app.store.plans import StagedPlan
from app.store.sidecars import Stored
from app.store.staging import Upload
from trtforge.contract.engines import Manifest
from trtforge.contract.models import Model


class Store(Protocol):
    """Models and plans by the digest of their bytes, manifests by engine key, logs by build.

    What is there is whole: a crash at any instant leaves a thing absent or complete. Digests and ids that could not be
    file names raise `ValueError`. Any write may raise `StoreFull` or `StoreUnusable`.
    """

    # ---- this process's own staging

    def open_staging(self, owner: str) -> None:
        """Take `owner`, an id that no process used before; it counts as alive until `close` or the process's death."""

    def owner_alive(self, owner: str) -> bool:
        """Tell whether that process may still be running. Only a sure death is False."""

    def sweep(self) -> list[str]:
        """Remove the staging of dead owners; return their ids."""

    def scratch(self, name: str) -> Path:
        """Return a fresh private folder on the local disk; plans are taken from such."""

    def discard(self, folder: Path) -> None:
        """Remove a scratch folder and all in it, if it is there."""

    def close(self) -> None:
        """Give up staging. May be repeated."""

    # ---- models

    def begin_model(self) -> Upload: ...

    def put_model(self, upload: Upload, digest: str) -> None:
        """Keep an upload. Raises `ValueError` when its bytes have another digest. May be repeated."""

    def has_model(self, digest: str) -> bool: ...

    def model_size(self, digest: str) -> int | None:
        """Return the bytes of a stored file of models, None when it is not there."""

    def open_model(self, digest: str) -> Path:
        """Return where the file can be read; it need not be there."""

    def link_model(self, digest: str, path: Path) -> None:
        """Make the model readable at `path`, without copying where that can be. Raises `FileNotFoundError`."""

    def stored_models(self) -> Iterator[Stored]:
        """Every file of models, in no order that means anything."""

    def verify_model(self, digest: str) -> bool:
        """Tell whether the file is there with its very bytes. Reads all of them."""

    def set_model_aside(self, digest: str) -> Path | None:
        """Take a file of models out of sight, so that it can be put back; None: it is not there."""

    def put_model_back(self, digest: str, aside: Path) -> None:
        """Undo `set_model_aside`, unless the file was put again meanwhile."""

    def put_inspection(self, model: Model) -> None:
        """Keep what was found in a model beside its files, over what is there: the store alone is a whole backup."""

    def inspection(self, digest: str) -> Model | None:
        """Return what was found in a model; None when it is not there or damaged."""

    def inspection_digests(self) -> Iterator[str]:
        """The digests of all of them, of damaged ones too."""

    def remove_inspection(self, digest: str) -> None: ...

    # ---- plans

    def take_plan(self, path: Path) -> StagedPlan:
        """Hash and fsync what a dead child left in its scratch folder. Raises `PlanRejected`."""

    def put_plan(self, staged: StagedPlan) -> None:
        """Keep a taken plan. May be repeated; raises `PlanRejected` when the file changed since it was taken."""

    def has_plan(self, digest: str, size: int) -> bool:
        """Tell whether the plan is there with that many bytes. Cheap."""

    def verify_plan(self, digest: str) -> bool:
        """Tell whether the plan is there with its very bytes. Reads all of them."""

    def open_plan(self, digest: str) -> Path:
        """Return where the plan can be read; it need not be there."""

    def link_plan(self, digest: str, path: Path) -> None:
        """Make the plan readable at `path`, as `link_model` does. Raises `FileNotFoundError`."""

    def remove_plan(self, digest: str) -> None: ...

    def set_plan_aside(self, digest: str) -> Path | None:
        """Take the plan out of sight, so that it can be put back; None: it is not there. Readers keep what they opened."""

    def put_plan_back(self, digest: str, aside: Path) -> None:
        """Undo `set_plan_aside`, unless the plan was put again meanwhile."""

    def stored_plans(self) -> Iterator[Stored]:
        """Every plan, in no order that means anything."""

    # ---- manifests

    def put_manifest(self, manifest: Manifest) -> Manifest:
        """Keep the manifest unless one of its key is there; return the one that is kept then. Over a damaged one."""

    def manifest(self, key: str) -> Manifest | None:
        """Return the manifest of an engine; None when it is not there or damaged."""

    def damaged(self, key: str) -> bool:
        """Tell whether something is there that is no manifest of this key."""

    def manifests(self) -> Iterator[Manifest]:
        """Every undamaged manifest, in no order that means anything."""

    def manifest_keys(self) -> Iterator[str]:
        """The keys of all manifests, damaged ones too."""

    def remove_manifest(self, key: str) -> None:
        """Remove the manifest and its signature."""

    # ---- signatures, each beside the manifest of its key

    def put_signature(self, key: str, envelope: bytes) -> None:
        """Keep a signature, over any that is there."""

    def signature(self, key: str) -> bytes | None: ...

    def signature_keys(self) -> Iterator[str]:
        """The keys of all signatures."""

    def remove_signature(self, key: str) -> None: ...

    # ---- logs

    def append_log(self, build_id: str, text: bytes) -> None: ...

    def log(self, build_id: str) -> bytes | None: ...

    def log_size(self, build_id: str) -> int:
        """Return the bytes of a log, 0 when there is none."""

    def remove_log(self, build_id: str) -> None: ...

    # ---- the store itself

    def key_lock(self, key: str) -> Path:
        """Return the lock file of an engine key, on the disk that all processes share. Never delete it."""

    def gc_lock(self) -> Path:
        """Return the lock file of whoever removes things, on the disk that all processes share."""

    def used_bytes(self, fresh: bool = True) -> int:
        """Return the bytes of plans and files of models; unless `fresh`, as they were some seconds ago."""

    def probe(self) -> None:
        """Try what publishing needs, in small. Raises `StoreFull` or `StoreUnusable` with the reason."""

    def free_bytes(self) -> int: ...

"""What leaves as a tar: engines for another service or an image, and one engine as Triton wants it."""

import io
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.builds.fetches import note_fetch
from app.builds.parts import Parts
from app.db import engines, models
from app.domain import triton
from app.errors import Refused, StoreUnusable
from trtforge.contract.engines import Manifest, PlanRef

MANIFEST, SIGNATURE, PLAN = "manifest.json", "signature.json", "plan"  # of an engine, in this order in an archive
MOST_ENGINES = 64  # in one archive: each keeps its plan open meanwhile


@dataclass(frozen=True)
class Member:
    """A file of an archive, open: what is removed meanwhile is still sent whole."""

    name: str
    size: int  # bytes
    file: BinaryIO


def archive(parts: Parts, keys: Sequence[str]) -> list[Member]:
    """Return the members of an archive of engines, the same for the same engines in whatever order they are named.

    Raises `Refused`: not_found, invalid_request, engine_corrupt.
    """
    wanted = sorted(set(keys))
    if len(wanted) > MOST_ENGINES:
        raise Refused("invalid_request", f"An archive may have {MOST_ENGINES} engines.")
    members: list[Member] = []
    try:
        for key in wanted:
            members += _engine(parts, key)
    except BaseException:
        close(members)
        raise
    return members


def triton_folder(parts: Parts, key: str, name: str | None) -> tuple[str, list[Member]]:
    """Return the model's name and the members of its folder in a model repository. Raises `Refused`."""
    manifest = Manifest.model_validate_json(_manifest(parts, key))
    known, config = triton_config(parts, key, name)
    content = Member(f"{known}/config.pbtxt", len(config), io.BytesIO(config))
    return known, [content, _plan(parts, f"{known}/1/{triton.PLAN_FILE}", manifest.plan)]


def triton_config(parts: Parts, key: str, name: str | None) -> tuple[str, bytes]:
    """Return the model's name and its configuration. Raises `Refused`: not_found, invalid_request, triton_unsupported."""
    manifest = Manifest.model_validate_json(_manifest(parts, key))
    inputs, outputs = manifest.model.inputs, manifest.model.outputs
    if inputs is None or outputs is None:
        with parts.database.read() as tx:
            model = models.find(tx, manifest.model.digest)
        if model is None:
            raise Refused("triton_unsupported", "Neither the manifest nor a model here names its inputs and outputs.")
        inputs, outputs = model.inputs, model.outputs
    known = triton.name_of(manifest, name)
    return known, triton.config_of(manifest, known, inputs, outputs).encode()


def close(members: Sequence[Member]) -> None:
    for member in members:
        member.file.close()


def _engine(parts: Parts, key: str) -> list[Member]:
    manifest, signature = _manifest(parts, key), parts.store.signature(key)
    folder = key.removeprefix("sha256:")
    found = [(MANIFEST, manifest), *([(SIGNATURE, signature)] if signature else [])]
    texts = [Member(f"{folder}/{name}", len(content), io.BytesIO(content)) for name, content in found]
    return [*texts, _plan(parts, f"{folder}/{PLAN}", Manifest.model_validate_json(manifest).plan)]


def _manifest(parts: Parts, key: str) -> bytes:
    with parts.database.read() as tx:
        manifest = engines.manifest(tx, key)
    if manifest is None:
        raise Refused("not_found", f"No engine {key}.")
    return manifest.encode()


def _plan(parts: Parts, name: str, plan: PlanRef) -> Member:
    note_fetch(parts, plan.digest)
    file = _opened(parts.store.open_plan(plan.digest))
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_size != plan.size:
        file.close()
        raise Refused("engine_corrupt", "The stored plan is damaged.")
    return Member(name, plan.size, file)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise Refused("engine_corrupt", "The stored plan is missing.") from error
    except OSError as error:  # no descriptor left, say: the plan may be as it was
        raise StoreUnusable(f"a plan cannot be opened: {error.strerror}") from error

"""A service that already has engines: published through the real store and index, before it starts."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from app.builds.parts import Parts
from app.builds.publish import publish
from app.db import engines, migrate, models
from app.db.session import Database
from app.domain.ids import new_id
from app.settings import Settings
from app.store.local import LocalStore
from tests.conftest import Server
from tests.domain.manifests import manifest
from trtforge.contract.engines import Manifest
from trtforge.contract.models import Inspection, ModelFile, Tensor
from trtforge.contract.spec import EffectiveSpec
from trtforge.contract.target import Target

INSPECTION = Inspection(
    opset={"": 17},
    ir_version=8,
    producer="tests",
    node_count=1,
    parameter_bytes=0,
    operators={"Relu": 1},
    inputs=(
        Tensor(name="x", dtype="float32", shape=(None, 3), axes=("n", None)),
        Tensor(name="ids", dtype="int64", shape=(None,), axes=("m",)),
    ),
    outputs=(),
)

Seed = tuple[str, EffectiveSpec, Target, bytes]  # model, spec, target, plan


def parts_of(data: Path, url: str | None = None) -> Parts:
    """Return the parts of a service that works in `data`; staging is open."""
    data.mkdir(parents=True, exist_ok=True)
    settings = Settings(data_dir=data, lock_dir=data.parent / f"{data.name}-locks")
    parts = Parts(settings, Database(url or settings.url), LocalStore(data / "store"))
    migrate.upgrade(parts.database)
    parts.store.open_staging(new_id("wrk"))
    return parts


def seed(parts: Parts, seeds: Sequence[Seed], **other: Any) -> list[Manifest]:
    """Publish engines as a build does, oldest first, with their models."""
    return [_one(parts, *one, **other) for one in seeds]


def _one(parts: Parts, model: str, spec: EffectiveSpec, target: Target, plan: bytes, **other: Any) -> Manifest:
    at = datetime.now(UTC)
    hex_digits = model.removeprefix("sha256:")
    stored = parts.settings.data_dir / "store/models" / hex_digits[:2] / hex_digits
    stored.parent.mkdir(exist_ok=True)
    stored.write_bytes(b"not built")  # in place of a model: these engines are there already
    staged = parts.store.scratch("seed") / "plan"
    staged.write_bytes(plan)
    kept = publish(
        parts, staged, lambda ref: manifest(model, spec, target, **({"plan": ref, "created_at": at} | other))
    )
    with parts.database.write() as tx:
        models.add(tx, model, "model.onnx", [ModelFile(name="model.onnx", digest=model, size=7)], INSPECTION, at)
        engines.add(tx, kept)
    return kept


def seeded(data: Path, seeds: Sequence[Seed], **settings: str) -> tuple[Server, list[Manifest]]:
    """Return a service that is not started yet, and the engines it has."""
    parts = parts_of(data)
    try:
        return Server(data, **settings), seed(parts, seeds)
    finally:
        parts.store.close()
        parts.database.close()


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def ask(server: Server, method: str, path: str, **request: Any) -> httpx.Response:
    return httpx.request(method, server.url + path, timeout=30, **request)

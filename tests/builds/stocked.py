"""Engines and models with bytes of their own, put through the real store and index."""

import hashlib
import os
from datetime import datetime, timedelta
from typing import Any

from app.builds.parts import Parts
from app.builds.publish import publish
from app.db import engines, models, targets
from app.domain.effective import effective
from tests.domain.manifests import manifest
from tests.domain.test_targets import RTX
from tests.scene import WORDS
from trtforge.contract.engines import Manifest
from trtforge.contract.models import Model, ModelFile
from trtforge.contract.spec import BuildSpec


def stock_model(parts: Parts, content: bytes = b"a model", at: datetime | None = None) -> str:
    """Put a model of one file, as an upload does; return its digest."""
    upload = parts.store.begin_model()
    upload.write(content)
    digest, at = upload.digest, at or parts.now()
    parts.store.put_model(upload, digest)
    file = ModelFile(name="model.onnx", digest=digest, size=len(content))
    found = WORDS.model_dump()
    parts.store.put_inspection(
        Model(digest=digest, size=len(content), graph="model.onnx", files=(file,), created_at=at, **found)
    )
    with parts.database.write() as tx:
        models.add(tx, digest, "model.onnx", [file], WORDS, at)
    return digest


def stock_engine(parts: Parts, model: str, number: int, plan: bytes, **other: Any) -> Manifest:
    """Publish the engine number `number` of a model: each number is another spec."""
    with parts.database.read() as tx:
        known = next(iter(targets.known(tx, parts.now() - timedelta(days=1))), RTX)
    target, spec = known.target, effective(BuildSpec(workspace_bytes=(1 << 20) + number), known.capabilities)
    folder = parts.store.scratch("plan")
    (folder / "plan").write_bytes(plan)
    fields = {"created_at": parts.now()} | other
    kept = publish(parts, folder / "plan", lambda ref: manifest(model, spec, target, **({"plan": ref} | fields)))
    parts.store.discard(folder)
    with parts.database.write() as tx:
        engines.add(tx, kept)
    return kept


def age_files(parts: Parts) -> None:
    """Make every stored file as old as the clock of a test wants it."""
    long_ago = 1e9
    for kind in ("plans", "models"):
        for path in (parts.settings.data_dir / "store" / kind).rglob("*"):
            if path.is_file():
                os.utime(path, (long_ago, long_ago))


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()

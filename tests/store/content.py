"""Bytes, and how they come into a store."""

import hashlib
import os
from pathlib import Path

from app.store.base import Store
from app.store.plans import StagedPlan
from app.store.staging import Upload

CONTENT = os.urandom(3 << 20)


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def uploaded(store: Store, content: bytes = CONTENT) -> Upload:
    upload = store.begin_model()
    for start in range(0, len(content), 1 << 20):
        upload.write(content[start : start + (1 << 20)])
    return upload


def left(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / "plan"
    path.write_bytes(content)
    return path


def kept(store: Store, content: bytes = CONTENT) -> StagedPlan:
    with store.take_plan(left(store.scratch("b"), content)) as staged:
        store.put_plan(staged)
    return staged

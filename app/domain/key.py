"""The engine key: one digest over everything that shapes an engine, and over nothing else."""

import hashlib
import json

from trtforge.contract.spec import EffectiveSpec
from trtforge.contract.target import Target

KEY_SCHEMA = 1  # raised whenever the bytes under the digest change their meaning: every key changes with it


def engine_key(model: str, spec: EffectiveSpec, target: Target) -> str:
    """Return the key of the engine that `model` (a digest) gives under `spec` on `target`, as `sha256:<64 hex>`.

    Profiles keep their order, because TensorRT numbers them; the order of the inputs inside one means nothing.
    """
    named = {
        "key_schema": KEY_SCHEMA,
        "model": model,
        "spec": spec.model_dump(mode="json", exclude_none=True),  # an option that the builder lacks shapes nothing
        "target": target.model_dump(mode="json"),
    }
    canonical = json.dumps(named, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def rebuild_key(key: str) -> str:
    """Return what stands for building the engine `key` again: never an engine's key, and the same for everyone."""
    return "sha256:" + hashlib.sha256(f"rebuild {key}".encode()).hexdigest()

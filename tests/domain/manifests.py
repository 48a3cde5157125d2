"""Manifests of engines that could have been built."""

from datetime import UTC, datetime
from typing import Any

from app.domain.key import KEY_SCHEMA, engine_key
from trtforge.contract.engines import (
    LoadedEngine,
    Manifest,
    ManifestBuild,
    ManifestBuilder,
    ManifestModel,
    ManifestSpec,
    Memory,
    PlanRef,
    Precision,
    Timings,
)
from trtforge.contract.models import ModelFile
from trtforge.contract.spec import BuildSpec, EffectiveSpec
from trtforge.contract.target import Target

LOADED = LoadedEngine.model_validate(
    {
        "seconds": 0.25,
        "memory": {"profiles": [7, None], "context_bytes": 7, "weights_bytes": 1, "streamable_weights_bytes": 0},
        "layers": {"conv.1": "float16", "relu": None},
        "inspector": {"Layers": [{"Name": "conv.1", "Scale": 1e-07, "Big": 1 << 70, "Bias": None, "é": 1.0}]},
        "measurements": [
            {
                "contexts": 2,
                "cuda_graphs": graphs,
                "inferences": 9,
                "seconds": 1.0,
                "throughput_per_s": 9.0,
                "latency_ms": {"p50": 0.1, "p99": 0.2},
            }
            for graphs in (False, True)
        ],
    }
)
PLAN = PlanRef(digest="sha256:" + "1" * 64, size=1000)


def manifest(model: str, spec: EffectiveSpec, target: Target, **other: Any) -> Manifest:
    fields: dict[str, Any] = {
        "engine_key": engine_key(model, spec, target),
        "key_schema": KEY_SCHEMA,
        "model": ManifestModel(digest=model, files=(ModelFile(name="model.onnx", digest=model, size=7),)),
        "target": target,
        "spec": ManifestSpec(requested=BuildSpec(), effective=spec),
        "plan": PLAN,
        "builder": ManifestBuilder(name=target.builder, version=target.builder_version, onnx_parser="10.0"),
        "tools": {"onnx": "1.23"},
        "timings": Timings(stages={"build": 3.0}, phases=()),
        "memory": Memory(weights_bytes=1, activation_bytes=2, scratch_bytes=3),
        "precision": Precision(requested=spec.precision, achieved={"float32": 9}),
        "warnings": (),
        "verified": "bytes",
        "build": ManifestBuild(id="bld_1", attempts=1, service_version="0"),
        "created_at": datetime(2030, 1, 1, tzinfo=UTC),
    }
    return Manifest(**(fields | other))

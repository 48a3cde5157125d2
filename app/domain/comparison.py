"""How two manifests differ, in groups: what was put in, what it was built for, how, and what came out."""

from collections import defaultdict
from typing import Any

from app.domain.differences import changes
from trtforge.contract.compare import Change, EngineDiff, Group
from trtforge.contract.engines import Manifest

# A field of the spec or target that is not named here counts as an option or as the target: none can be forgotten.
GROUPS: dict[str, Group] = {
    "profiles": "shapes",
    "precision": "precision",
    "achieved": "precision",
    "layers": "precision",
    "builder": "builder",
    "builder_version": "builder",
    "onnx_parser": "builder",
    "tools": "builder",
    "plugins": "options",
    "timing_cache": "options",
    "calibration": "calibration",
}
ORDER: tuple[Group, ...] = (
    "model",
    "shapes",
    "precision",
    "builder",
    "target",
    "options",
    "calibration",
    "performance",
)


def compare(a: Manifest, b: Manifest) -> EngineDiff:
    """Return what differs from `a` to `b`. Keys, ids and times of day are no answer to "why" and are left out."""
    found: defaultdict[Group, list[Change]] = defaultdict(list)
    loaded = (_layers, _figures) if a.loaded and b.loaded else ()  # else only one of them says such things
    for aspect in (_model, _spec, _target, _making, _performance, *loaded):
        default, left, right = _DEFAULT[aspect], aspect(a), aspect(b)
        for field, here, there in changes(left, right):
            group = GROUPS.get(field.partition(".")[0], default)
            found[group].append(Change(field=field, a=here, b=there))
    groups = {group: tuple(sorted(found[group], key=lambda c: c.field)) for group in ORDER if found[group]}
    return EngineDiff(a=a.engine_key, b=b.engine_key, same_plan=a.plan.digest == b.plan.digest, groups=groups)


def _model(manifest: Manifest) -> dict[str, Any]:
    files = manifest.model.files
    named = {f.name: f.digest for f in files} if len(files) > 1 else {}  # a single file's digest is the model's
    return {"model": manifest.model.digest, **{f"files.{name}": digest for name, digest in named.items()}}


def _spec(manifest: Manifest) -> dict[str, Any]:
    return manifest.spec.effective.model_dump(mode="json")


def _target(manifest: Manifest) -> dict[str, Any]:
    return manifest.target.model_dump(mode="json")


def _making(manifest: Manifest) -> dict[str, Any]:
    """What is no part of the key and may still explain a difference."""
    names = {"tools", "calibration", "plugins", "timing_cache"}
    plain = manifest.model_dump(mode="json", include=names)
    return {**plain, "achieved": manifest.precision.achieved, "onnx_parser": manifest.builder.onnx_parser}


def _performance(manifest: Manifest) -> dict[str, Any]:
    stages = manifest.timings.stages
    memory = manifest.memory.model_dump()
    return {"plan_size": manifest.plan.size, **memory, **{f"{stage}_s": took for stage, took in stages.items()}}


def _layers(manifest: Manifest) -> dict[str, Any]:
    """Of the loaded engine; a name may hold dots."""
    return {"layers": manifest.loaded.layers if manifest.loaded else {}}


def _figures(manifest: Manifest) -> dict[str, Any]:
    """Of the loaded engine, each measurement by how many contexts there were."""
    if manifest.loaded is None:
        return {}
    points = {f"{m.contexts}{'_graphs' if m.cuda_graphs else ''}": m for m in manifest.loaded.measurements}
    told = {
        name: {"throughput_per_s": m.throughput_per_s, "latency_ms": m.latency_ms.model_dump()}
        for name, m in points.items()
    }
    return {"gpu_memory": manifest.loaded.memory.model_dump(mode="json"), "contexts": told}


_DEFAULT: dict[Any, Group] = {
    _model: "model",
    _spec: "options",
    _target: "target",
    _making: "options",
    _performance: "performance",
    _layers: "precision",
    _figures: "performance",
}

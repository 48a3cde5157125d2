"""Make a plan visible, so that a crash at any instant leaves no engine or a whole one.

before 0  staging only: in this process's own folder, swept once its lock is free
0 → 1     stage says publish: no stop and no other attempt can come between; recovery finishes or fails it
1 → 2     the plan has its final name, nothing points at it: kept for the retry, else collected
2 → 3     the manifest is there: another process may already serve it; recovery adds the row from it
          (its signature, when there is a key, was put right before it: an engine that is seen is signed)
after 3   done; a second publish of the same key finds everything and changes nothing

All of it happens under the lock of the engine key, with the builder's process group gone.
"""

from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from time import sleep
from typing import TypeVar

import app
from app.builds.parts import Parts
from app.builds.signing import sign
from app.db.builds import BuildRow
from app.domain.key import KEY_SCHEMA
from app.errors import StoreFull, StoreUnusable
from app.worker.messages import Built
from trtforge.contract.engines import (
    LoadedEngine,
    Manifest,
    ManifestBuild,
    ManifestBuilder,
    ManifestDevice,
    ManifestModel,
    ManifestSpec,
    Memory,
    PlanRef,
    Precision,
    Timings,
)
from trtforge.contract.models import Model
from trtforge.contract.spec import BuildSpec, EffectiveSpec
from trtforge.contract.target import Target

RETRIES = (0.2, 1.0)  # seconds before trying again: minutes of building are not thrown away for a hiccup

T = TypeVar("T")


def publish(parts: Parts, staged: Path, manifest_for: Callable[[PlanRef], Manifest]) -> Manifest:
    """Steps 1 and 2; return the manifest that is kept, which may be an earlier one: step 3 writes the row from it.

    The stage must say publish already (step 0). Raises `PlanRejected`, `StoreFull`, `StoreUnusable`.
    """
    store = parts.store
    with stubbornly(lambda: store.take_plan(staged)) as plan:
        stubbornly(lambda: store.put_plan(plan))  # 1
        manifest = manifest_for(PlanRef(digest=plan.digest, size=plan.size))
        stubbornly(
            lambda: sign(parts, manifest)
        )  # a crash here leaves a signature over nothing: the next is put over it
        kept = stubbornly(lambda: store.put_manifest(manifest))  # 2
        if kept != manifest:
            stubbornly(lambda: sign(parts, kept))
        return kept


def stubbornly(work: Callable[[], T]) -> T:
    """Do it again when the store fails, before giving up: the plan stays in staging meanwhile."""
    for pause in RETRIES:
        try:
            return work()
        except (StoreFull, StoreUnusable):
            sleep(pause)
    return work()


def whole_engine(parts: Parts, engine_key: str) -> Manifest | None:
    """Return the manifest of an engine whose plan is there, byte for byte; clear away one that is damaged.

    Only under the key's lock.
    """
    store = parts.store
    manifest = store.manifest(engine_key)
    if manifest is None:
        if store.damaged(engine_key):
            store.remove_manifest(engine_key)
        return None
    if store.has_plan(manifest.plan.digest, manifest.plan.size) and store.verify_plan(manifest.plan.digest):
        return manifest
    store.remove_manifest(engine_key)
    return None


def make_manifest(
    build: BuildRow,
    model: Model,
    built: Built,
    plan: PlanRef,
    timings: Timings,
    warnings: list[str],
    at: datetime,
    device: ManifestDevice | None = None,
    loaded: LoadedEngine | None = None,
) -> Manifest:
    """Return everything that explains the plan and repeats its build."""
    target = Target.model_validate(build.target)
    spec = EffectiveSpec.model_validate(build.spec_effective)
    return Manifest(
        engine_key=build.engine_key,
        key_schema=KEY_SCHEMA,
        model=ManifestModel(digest=model.digest, files=model.files, inputs=model.inputs, outputs=model.outputs),
        target=target,
        spec=ManifestSpec(requested=BuildSpec.model_validate(build.spec_requested), effective=spec),
        plan=plan,
        builder=ManifestBuilder(name=target.builder, version=target.builder_version, onnx_parser=built.onnx_parser),
        tools={"onnx": version("onnx")},
        timings=timings,
        memory=Memory(
            weights_bytes=built.weights_bytes,
            activation_bytes=built.activation_bytes,
            scratch_bytes=built.scratch_bytes,
        ),
        plugins=tuple(built.plugins),
        precision=Precision(requested=spec.precision, achieved=built.layers_by_dtype),
        warnings=tuple(warnings),
        timing_cache=built.timing_cache,
        device=device,
        loaded=loaded,
        verified="deserialized" if loaded else "bytes",
        build=ManifestBuild(id=build.id, attempts=build.attempt, service_version=app.__version__),
        created_at=at,
    )

"""Every implementation of `Store`, behind one fixture; and one whole manifest."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.store.base import Store
from app.store.local import LocalStore
from trtforge.contract.engines import (
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
from trtforge.contract.spec import BuildSpec, EffectiveSpec
from trtforge.contract.target import Target

KEY = "sha256:" + "5e" * 32
DIGEST = "sha256:" + "d1" * 32


def manifest_of(key: str = KEY, build: str = "bld_1") -> Manifest:
    return Manifest(
        engine_key=key,
        key_schema=1,
        model=ManifestModel(digest=DIGEST, files=()),
        target=Target(builder="tensorrt_rtx", builder_version="1", compute_capabilities=("8.9",), os="linux", arch="x"),
        spec=ManifestSpec(
            requested=BuildSpec(),
            effective=EffectiveSpec(profiles=(), precision="as_is", optimization_level=3, workspace_bytes=1),
        ),
        plan=PlanRef(digest=DIGEST, size=4),
        builder=ManifestBuilder(name="tensorrt_rtx", version="1", onnx_parser="1"),
        tools={},
        timings=Timings(stages={"build": 1.5}, phases=()),
        memory=Memory(weights_bytes=1, activation_bytes=None, scratch_bytes=None),
        precision=Precision(requested="as_is", achieved={"float32": 3}),
        warnings=(),
        verified="bytes",
        build=ManifestBuild(id=build, attempts=1, service_version="0"),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def local(folder: Path) -> Store:
    return LocalStore(folder / "store")


@pytest.fixture(params=[local])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """A way to open the same store again and again, each time as another owner."""
    stores: list[Store] = []

    def open_as(owner: str) -> Store:
        store: Store = request.param(tmp_path)
        store.open_staging(owner)
        stores.append(store)
        return store

    yield open_as
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[str], Store]) -> Store:
    return opened("one")

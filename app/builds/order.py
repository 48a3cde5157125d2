"""What a child is told to build, and what it finds in its folder besides the model."""

from pathlib import Path

from app.builds.layout import BASE, GRAPH, PLAN, TIMINGS
from app.db.builds import BuildRow
from app.domain.capabilities import KINDS
from app.domain.timing_cache import timing_cache_name
from app.settings import Settings
from app.store.base import Store
from app.worker.messages import BuildRequest, RefitRequest
from trtforge.contract.spec import FullOptions
from trtforge.contract.target import Target


class BaseGone(Exception):
    """The engine that was to be refitted is not in the store, or not whole."""


def order_for(row: BuildRow, settings: Settings, store: Store, folder: Path) -> BuildRequest | RefitRequest:
    """Return the request for a build's child, and lay out in `folder` what it names besides the model.

    Raises `BaseGone`, `StoreFull`, `StoreUnusable`.
    """
    base = row.spec_effective.get("refitted_from")
    return _build(row, settings, folder) if base is None else _refit(row, base, store, folder)


def _build(row: BuildRow, settings: Settings, folder: Path) -> BuildRequest:
    """Its timing cache is reachable in `folder`; it need not exist yet."""
    spec, target = row.spec_effective, Target.model_validate(row.target)
    given = {name: spec.get(name) for name in FullOptions.model_fields}
    return BuildRequest(
        builder=target.builder,
        model=GRAPH,
        plan=PLAN,
        profiles=spec["profiles"],
        optimization_level=spec["optimization_level"],
        workspace_bytes=spec["workspace_bytes"],
        compute_capabilities=list(target.compute_capabilities) if target.gpu is None else [],
        options={name: value for name, value in given.items() if value is not None},
        timing_cache=_timing_cache(target, settings, folder),
        timing_cache_pinned=settings.timing_cache == "pinned",
    )


def _refit(row: BuildRow, base: str, store: Store, folder: Path) -> RefitRequest:
    manifest = store.manifest(base)
    if manifest is None or not store.verify_plan(manifest.plan.digest):  # its damage would live on under a new digest
        raise BaseGone(base)
    try:
        store.link_plan(manifest.plan.digest, folder / BASE)
    except FileNotFoundError as error:
        raise BaseGone(base) from error
    return RefitRequest(
        builder=manifest.target.builder,
        base=BASE,
        model=GRAPH,
        plan=PLAN,
        keeps_refit=row.spec_effective.get("refit") == "all",
        host_code=bool(row.spec_effective.get("version_compatible")),
        figures={"layers_by_dtype": manifest.precision.achieved, **manifest.memory.model_dump()},
    )


def _timing_cache(target: Target, settings: Settings, folder: Path) -> str | None:
    if settings.timing_cache == "off" or not KINDS[target.builder].timing_cache:
        return None
    settings.timing_caches.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / TIMINGS).symlink_to(settings.timing_caches)
    return f"{TIMINGS}/{timing_cache_name(target)}"

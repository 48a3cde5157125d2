"""What a child is told to build, and what it finds in its folder besides the model."""

from pathlib import Path

from app.builds.attempt import MODEL, PLAN
from app.builds.layout import TIMINGS
from app.db.builds import BuildRow
from app.domain.capabilities import KINDS
from app.domain.timing_cache import timing_cache_name
from app.settings import Settings
from app.worker.messages import BuildRequest
from trtforge.contract.spec import FullOptions
from trtforge.contract.target import Target


def order_for(row: BuildRow, settings: Settings, folder: Path) -> BuildRequest:
    """Return the request for a build's child. Makes its timing cache reachable in `folder`; it need not exist yet."""
    spec, target = row.spec_effective, Target.model_validate(row.target)
    given = {name: spec.get(name) for name in FullOptions.model_fields}
    return BuildRequest(
        builder=target.builder,
        model=MODEL,
        plan=PLAN,
        profiles=spec["profiles"],
        optimization_level=spec["optimization_level"],
        workspace_bytes=spec["workspace_bytes"],
        compute_capabilities=list(target.compute_capabilities) if target.gpu is None else [],
        options={name: value for name, value in given.items() if value is not None},
        timing_cache=_timing_cache(target, settings, folder),
        timing_cache_pinned=settings.timing_cache == "pinned",
    )


def _timing_cache(target: Target, settings: Settings, folder: Path) -> str | None:
    if settings.timing_cache == "off" or not KINDS[target.builder].timing_cache:
        return None
    settings.timing_caches.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / TIMINGS).symlink_to(settings.timing_caches)
    return f"{TIMINGS}/{timing_cache_name(target)}"

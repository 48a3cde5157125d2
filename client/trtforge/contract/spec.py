"""Build spec (shapes the engine, in the key) and build options (how to run it, never in the key)."""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, StringConstraints

from trtforge.contract.base import Asked, Wire

Extent = Annotated[
    int, Field(strict=True)
]  # signed: a negative or zero extent is refused with its axis, not as a type error
Extents = Annotated[tuple[Extent, ...], Field(max_length=64)]  # a shape has at most 8, shape values at most 64
Seconds = Annotated[FiniteFloat, Field(gt=0, le=30 * 86400)]
LabelKey = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?$")
]
LabelValue = Annotated[str, StringConstraints(max_length=256)]


class ShapeRange(Asked):
    """One input in one optimization profile; `values` when the three are shape values rather than shapes."""

    min: Extents
    opt: Extents
    max: Extents
    values: bool = False


OptimizationProfile = dict[str, ShapeRange]


PluginName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9_.-]+$")]


class BuildSpec(Asked):
    """What is asked for. What is left out is filled from the target's constant defaults."""

    profiles: Annotated[tuple[OptimizationProfile, ...], Field(max_length=32)] = ()
    precision: str | None = None
    optimization_level: Annotated[int, Field(strict=True)] | None = None
    workspace_bytes: Annotated[int, Field(strict=True)] | None = None
    plugins: Annotated[tuple[PluginName, ...], Field(max_length=32)] = ()  # names on the operator's list


class Plugin(Wire):
    """A library that the operator approved. The digest makes it part of the key: another library, another engine."""

    name: str
    digest: str | None  # None: no library of this name is approved, so no engine can have been built with it


class EffectiveSpec(Wire):
    """What is built: nothing left open. In the engine key, canonically."""

    profiles: tuple[OptimizationProfile, ...]
    precision: str
    optimization_level: int
    workspace_bytes: int
    plugins: tuple[Plugin, ...] | None = None  # ascending by name; None: none, and not in the key


class FallbackStep(Asked):
    """Cheaper values to try when the build before ran out of time or failed."""

    spec: BuildSpec


class BuildOptions(Asked):
    """How to run a build: they belong to the request, so two requests with other options share one engine."""

    run_timeout_s: Seconds = 3600.0
    queue_timeout_s: Seconds = 86400.0
    stall_timeout_s: Seconds | None = None
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0  # higher first
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=32)] = {}
    fallback: Annotated[tuple[FallbackStep | Literal["existing"], ...], Field(max_length=8)] = ()
    retry: bool = False

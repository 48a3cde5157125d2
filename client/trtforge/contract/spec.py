"""Build spec (shapes the engine, in the key) and build options (how to run it, never in the key)."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, FiniteFloat, StrictBool, StringConstraints

from trtforge.contract.base import Asked, Digest, Wire

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


class FullOptions(BaseModel):
    """What only some builders can do: the capability table of a target lists what may be asked for, under `options`."""

    hardware_compatibility: str | None = None  # "none", "ampere_plus" or "same_compute_capability"
    version_compatible: StrictBool | None = None  # the plan also runs on later versions, through its lean runtime
    refit: str | None = None  # "none"; "identical": only with the very weights it was built from; "all": with any
    stripped_plan: StrictBool | None = None  # without the weights that a refit gives it
    weight_streaming: StrictBool | None = None  # weights may stay in the memory of the host
    sparsity: StrictBool | None = None  # use 2:4 structured sparsity where the weights have it
    tactic_dram_bytes: Annotated[int, Field(strict=True)] | None = None  # None: what the GPU model has
    tactic_shared_memory_bytes: Annotated[int, Field(strict=True)] | None = None  # None: what the GPU model has
    tactic_sources: Annotated[tuple[str, ...], Field(max_length=64)] | None = None
    plugins_to_serialize: Annotated[tuple[PluginName, ...], Field(max_length=32)] | None = (
        None  # of `plugins`: in the plan
    )
    profiling_verbosity: str | None = None  # what a plan says of its layers: "none", "layer_names_only", "detailed"


class BuildSpec(FullOptions, Asked):
    """What is asked for. What is left out is filled from the target's constant defaults."""

    profiles: Annotated[tuple[OptimizationProfile, ...], Field(max_length=32)] = ()
    precision: str | None = None
    optimization_level: Annotated[int, Field(strict=True)] | None = None
    workspace_bytes: Annotated[int, Field(strict=True)] | None = None
    plugins: Annotated[tuple[PluginName, ...], Field(max_length=32)] | None = None  # names on the operator's list
    refitted_from: None = None  # as an effective spec has it; a refit has an address of its own


class Plugin(Wire):
    """A library that the operator approved. The digest makes it part of the key: another library, another engine."""

    name: str
    digest: str | None  # None: no library of this name is approved, so no engine can have been built with it


class EffectiveSpec(FullOptions, Wire):
    """What is built: nothing left open. In the engine key, canonically, without the options that its builder lacks (None)."""

    profiles: tuple[OptimizationProfile, ...]
    precision: str
    optimization_level: int
    workspace_bytes: int
    plugins: tuple[Plugin, ...] | None = None  # ascending by name; None: none, and not in the key
    refitted_from: Digest | None = None  # key of the engine that was given this model's weights instead of a build


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

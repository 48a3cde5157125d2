"""What a builder on a target can do. Limits come from the probe; defaults are constants, so that keys agree everywhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trtforge.contract.spec import FullOptions
from trtforge.contract.target import Capabilities, Option, SpecDefaults

GIB = 1 << 30

# NVIDIA's own choice when nothing is asked: Ampere and newer. Turing (7.5) can be asked for; it refuses FP32 matrix
# products ("FP32 GEMM is not supported"), so it must not be in the way of everyone else.
NOT_BY_DEFAULT = frozenset({"7.5"})


@dataclass(frozen=True)
class Kind:
    """In what builders differ, as far as no probe can tell."""

    portable: bool  # its engines are bound to no GPU model and no driver
    needs_gpu: bool
    timing_cache: bool
    options: frozenset[str]  # of the full builder; the probe leaves out what this version lacks


KINDS = {
    # It takes these options, a timing cache too, and then ignores them or fails for want of a GPU or a lean runtime.
    "tensorrt_rtx": Kind(portable=True, needs_gpu=False, timing_cache=False, options=frozenset()),
    "tensorrt": Kind(portable=False, needs_gpu=True, timing_cache=True, options=frozenset(FullOptions.model_fields)),
}

# What is taken of an option when nothing is asked; one that is not here is left to the builder.
DEFAULTS: Mapping[str, bool | str] = {
    "hardware_compatibility": "none",
    "version_compatible": False,
    "refit": "none",
    "stripped_plan": False,
    "weight_streaming": False,
    "sparsity": False,
    "profiling_verbosity": "layer_names_only",
}


def default_compute_capabilities(supported: tuple[str, ...]) -> tuple[str, ...]:
    """Return those that an engine is built for when none are asked for."""
    return tuple(c for c in supported if c not in NOT_BY_DEFAULT) or supported


def capabilities_of(
    builder: str,
    supported: tuple[str, ...],
    default_level: int,
    highest_level: int,
    opset: int,
    options: Mapping[str, Mapping[str, Any]],
) -> Capabilities:
    """Return the capability table of a builder; `options` are those that it was seen to take, as `Option` has them."""
    kind = KINDS[builder]
    return Capabilities(
        precisions=("as_is",),
        optimization_level=(0, highest_level),
        workspace_bytes=(1 << 20, 1 << 40),  # 0 fails in the builder; above 1 TiB is a slip of the keyboard
        compute_capabilities=supported,
        opset=opset,
        needs_gpu=kind.needs_gpu,
        timing_cache=kind.timing_cache,
        portable=kind.portable,
        defaults=SpecDefaults(precision="as_is", optimization_level=default_level, workspace_bytes=8 * GIB),
        options={name: _option(name, found) for name, found in sorted(options.items()) if name in kind.options},
    )


def with_plugins(table: Capabilities, digests: dict[str, str]) -> Capabilities:
    """Return `table` with the libraries that are approved, which are the choices for what goes into a plan."""
    options = dict(table.options)
    if (offered := options.pop("plugins_to_serialize", None)) and digests:
        names = tuple(sorted(digests))
        options["plugins_to_serialize"] = offered.model_copy(update={"choices": names, "default": None})
    return table.model_copy(update={"plugins": digests, "options": options})


def _option(name: str, found: Mapping[str, Any]) -> Option:
    return Option.model_validate({"default": DEFAULTS.get(name), **found})

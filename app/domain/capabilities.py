"""What a builder on a target can do. Limits come from the probe; defaults are constants, so that keys agree everywhere."""

from trtforge.contract.target import Capabilities, SpecDefaults

GIB = 1 << 30

# NVIDIA's own choice when nothing is asked: Ampere and newer. Turing (7.5) can be asked for; it refuses FP32 matrix
# products ("FP32 GEMM is not supported"), so it must not be in the way of everyone else.
NOT_BY_DEFAULT = frozenset({"7.5"})


def default_compute_capabilities(supported: tuple[str, ...]) -> tuple[str, ...]:
    """Return those that an engine is built for when none are asked for."""
    return tuple(c for c in supported if c not in NOT_BY_DEFAULT) or supported


def capabilities_of(
    builder: str, supported: tuple[str, ...], default_level: int, highest_level: int, opset: int
) -> Capabilities:
    """Return the capability table of a builder."""
    portable = builder == "tensorrt_rtx"
    return Capabilities(
        precisions=("as_is",),
        optimization_level=(0, highest_level),
        workspace_bytes=(1 << 20, 1 << 40),  # 0 fails in the builder; above 1 TiB is a slip of the keyboard
        compute_capabilities=supported,
        opset=opset,
        needs_gpu=not portable,
        timing_cache=not portable,  # RTX takes one and ignores it
        portable=portable,
        defaults=SpecDefaults(precision="as_is", optimization_level=default_level, workspace_bytes=8 * GIB),
    )

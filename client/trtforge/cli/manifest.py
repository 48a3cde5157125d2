"""A manifest for people: the lines that say what an engine is, what it needs and how it was made."""

from collections import Counter

from trtforge.cli.shapes import as_trtexec
from trtforge.cli.text import plain, seconds, size
from trtforge.contract.engines import LoadedEngine, Manifest, Measurement, PhaseTiming
from trtforge.contract.target import Target
from trtforge.memory import memory_plan

_PHASES = 3  # the longest


def target_words(target: Target) -> str:
    gpu = (
        plain(target.gpu) if target.gpu else f"compute capability {', '.join(map(plain, target.compute_capabilities))}"
    )
    driver = f", driver {plain(target.driver)}" if target.driver else ""
    return (
        f"{target.builder} {plain(target.builder_version)} for {gpu}{driver}, {plain(target.os)}/{plain(target.arch)}"
    )


def summary(manifest: Manifest) -> str:
    spec, memory = manifest.spec.effective, manifest.memory
    achieved = ", ".join(f"{count} {plain(dtype)}" for dtype, count in manifest.precision.achieved.items())
    told = [
        f"engine {manifest.engine_key}",
        f"digest {manifest.plan.digest}, {size(manifest.plan.size)}, verified {manifest.verified}",
        f"target {target_words(manifest.target)}",
        f"spec   {plain(spec.precision)}, level {spec.optimization_level}, workspace {size(spec.workspace_bytes)}"
        + (f", {plain(as_trtexec([_corners(p) for p in spec.profiles]))}" if spec.profiles else ""),
        f"layers {achieved or 'not told'} (asked for {plain(manifest.precision.requested)})",
        f"memory weights {size(memory.weights_bytes)}, activations {size(memory.activation_bytes)} per context, "
        f"scratch {size(memory.scratch_bytes)}",
        "took   " + ", ".join(f"{plain(stage)} {seconds(took)}" for stage, took in manifest.timings.stages.items()),
    ]
    if slowest := sorted(_innermost(manifest.timings.phases), key=lambda phase: -phase.seconds)[:_PHASES]:
        told.append("phases " + ", ".join(f"{plain(p.path[-1])} {seconds(p.seconds)}" for p in slowest))
    if manifest.loaded:
        told += loaded(manifest.loaded)
    if manifest.warnings:
        told.append(f"{len(manifest.warnings)} warnings of the builder, the first: {plain(manifest.warnings[0])}")
    return "\n".join(told)


def loaded(engine: LoadedEngine) -> list[str]:
    """Return what the engine said when it was loaded, and a row for each number of contexts it was measured with."""
    memory, types = engine.memory, Counter(type_ or "not told" for type_ in engine.layers.values())
    layers = ", ".join(f"{count} {plain(type_)}" for type_, count in types.items())
    told = [
        f"loaded in {seconds(engine.seconds)}; a context takes {', '.join(map(size, memory.profiles))} of the GPU by profile; "
        f"layers {layers or 'not told'}"
    ]
    if engine.measurements:
        told += ["measured, at the optimal shapes:", *_table(engine.measurements)]
    return told


def _table(measurements: tuple[Measurement, ...]) -> list[str]:
    plainly = {m.contexts: m for m in measurements if not m.cuda_graphs}
    graphs = {m.contexts: m for m in measurements if m.cuda_graphs}
    head = [" contexts  inferences/s  p50 ms  p99 ms    with CUDA graphs:  inferences/s  p50 ms  p99 ms"]
    return head + [
        f" {count:>8}{_figures(plainly.get(count))}{'':21}{_figures(graphs.get(count))}".rstrip()
        for count in sorted(plainly | graphs)
    ]


def _figures(measured: Measurement | None) -> str:
    if measured is None:
        return f"{'-':>14}{'-':>8}{'-':>8}"
    return f"{measured.throughput_per_s:>14.1f}{measured.latency_ms.p50:>8.3f}{measured.latency_ms.p99:>8.3f}"


def budget(manifest: Manifest, contexts: int) -> str:
    """Return the device memory of so many execution contexts, added up."""
    plan = memory_plan(manifest.memory, contexts)
    if plan is None:
        return "budget the builder did not say how much memory it needs"
    return (
        f"budget {size(plan.total_bytes)}: weights {size(plan.weights_bytes)} once + {contexts} × "
        f"{size(plan.context_bytes)} of activations and scratch"
    )


def _innermost(phases: tuple[PhaseTiming, ...]) -> list[PhaseTiming]:
    """Leave out phases that only hold others: their seconds are counted there."""
    holders = {phase.path[:-1] for phase in phases}
    return [phase for phase in phases if phase.path not in holders]


def _corners(profile: object) -> dict[str, dict[str, list[int]]]:
    assert isinstance(profile, dict)
    return {name: {c: list(getattr(shapes, c)) for c in ("min", "opt", "max")} for name, shapes in profile.items()}

"""Build with TensorRT, in the child: one module for `tensorrt` and `tensorrt_rtx`, which differ in what they lack."""

import importlib
import threading
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from app.worker.messages import BuildRequest, Built, Failed, Log, Probed, Stage, Stopped
from app.worker.monitor import PhaseLog, monitor_for
from app.worker.native_log import NativeLog, logger_for
from app.worker.options import offered, set_options
from app.worker.plan import write_plan
from app.worker.plugins import Unusable, files_to_serialize, load
from app.worker.sandbox import landlock_abi
from app.worker.scrub import Scrubber
from app.worker.timing_cache import TimingCache
from app.worker.verdict import Ends, build_failure, parse_failure, same, unless_stopped, values_missing

Outcome = Built | Failed | Stopped

_DTYPES = {  # TensorRT's names → ONNX's in lower case, as everywhere on the wire
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "FP8": "float8e4m3fn",
    "FP4": "float4e2m1",
    "E8M0": "float8e8m0",
}


def build(request: BuildRequest, phases: PhaseLog, stop: threading.Event, scrub: Scrubber) -> Outcome:
    """Parse the model, build it and write the plan to a new file. Never raises for what the builder refuses."""
    try:
        _prepare(request, phases, stop, scrub)
        trt = importlib.import_module(request.builder)
        log = NativeLog(phases.say, scrub)
        builder = trt.Builder(logger := logger_for(trt, log))
        plugins = load(trt, request.plugins)
        unless_stopped(stop)
        phases.say(Stage("parse"))
        network, _parser = _parse(
            trt, builder, logger, request.model, log, scrub
        )  # it owns the weights: must live as long
        unless_stopped(stop)
        config = _configure(trt, builder, network, request)
        phases.say(Stage("build"))
        layers = layers_by_dtype(network)
        with TimingCache(trt, config, request, log, phases.say) as timings:
            plan = _serialize(trt, builder, network, config, log, phases, stop)
        write_plan(request.plan, plan)
        return Built(
            onnx_parser=parser_version(trt),
            layers_by_dtype=layers,
            weights_bytes=log.figure("Total Weights Memory"),
            activation_bytes=log.figure("Total Activation Memory"),
            scratch_bytes=log.figure("Max Scratch Memory"),
            timing_cache=timings.figures(),
            plugins=plugins,
        )
    except Ends as end:
        return end.outcome
    except Unusable as unusable:
        return Failed("plugin_unusable", str(unusable), log.first_error, where={"plugin": unusable.plugin})


def probe(name: str) -> Probed:
    """What the builder `name` is and can do on this machine. Raises whatever its import or first use raises."""
    trt = importlib.import_module(name)
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    config = builder.create_builder_config()
    default = config.builder_optimization_level
    config.builder_optimization_level = 99  # clamped silently to the highest
    return Probed(
        builder=name,
        builder_version=trt.__version__,
        onnx_parser=parser_version(trt),
        compute_capabilities=sorted(_capabilities(trt), key=_number),
        default_optimization_level=default,
        max_optimization_level=config.builder_optimization_level,
        gpu=None,
        driver=None,
        cuda=None,
        options=offered(trt, builder),
        landlock=landlock_abi(),
    )


def parser_version(trt: Any) -> str:
    """Return the ONNX parser's own version, packed by it as major * 10000 + minor * 100 + patch; else the builder's."""
    try:
        packed = int(trt.get_nv_onnx_parser_version())
    except (AttributeError, TypeError, ValueError):
        return str(trt.__version__)
    return f"{packed // 10000}.{packed // 100 % 100}.{packed % 100}"


def layers_by_dtype(network: Any) -> dict[str, int]:
    """Count the layers by the type of their first output, before the builder fuses them."""
    layers = (network.get_layer(i) for i in range(network.num_layers))
    names = (layer.get_output(0).dtype.name for layer in layers if layer.num_outputs)
    return dict(Counter(_DTYPES.get(name, name.lower()) for name in names))


def _capabilities(trt: Any) -> dict[str, Any]:
    """Compute capability → the enum's member; empty where the builder has no such choice."""
    members = getattr(trt, "ComputeCapability", None)
    named = members.__members__ if members else {}
    return {f"{name[2:-1]}.{name[-1]}": member for name, member in named.items() if name.startswith("SM")}


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


def _prepare(request: BuildRequest, phases: PhaseLog, stop: threading.Event, scrub: Scrubber) -> None:
    """Ask the shape doctor where there are profiles, before any native builder: some shapes crash it."""
    if not request.profiles:
        return
    from app.worker.consult import DOCTOR_S, consult

    report = consult(request.model, request.profiles, DOCTOR_S, stop, scrub)
    unless_stopped(stop)
    if report.problems:
        first = report.problems[0]
        where = {**first["where"], "problems": report.problems[1:]} if report.problems[1:] else first["where"]
        raise Ends(Failed(first["code"], first["message"], where=where, remedy=first["remedy"]))
    for warning in report.warnings:
        phases.say(Log("warning", f"{warning['message']} {warning['remedy']}"))


def _parse(trt: Any, builder: Any, logger: Any, model: str, log: NativeLog, scrub: Scrubber) -> tuple[Any, Any]:
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(model) or parser.num_errors:
        raise Ends(parse_failure(parser, model, log.first_error, scrub))
    return network, parser


def _configure(trt: Any, builder: Any, network: Any, request: BuildRequest) -> Any:
    config = builder.create_builder_config()
    _set_level(config, request.optimization_level)
    _set_workspace(trt, config, request.workspace_bytes)
    _set_capabilities(trt, config, request.compute_capabilities)
    set_options(trt, config, request.options | files_to_serialize(request))
    inputs = {network.get_input(i).name: network.get_input(i) for i in range(network.num_inputs)}
    if missing := values_missing(network, request.profiles):
        raise Ends(missing)
    for number, ranges in enumerate(request.profiles):
        _add_profile(builder, config, number, ranges, inputs)
    return config


def _set_level(config: Any, asked: int) -> None:
    with suppress(TypeError, ValueError, OverflowError):
        config.builder_optimization_level = asked
    same("optimization_level", asked, config.builder_optimization_level)


def _set_workspace(trt: Any, config: Any, asked: int) -> None:
    with suppress(TypeError, ValueError, OverflowError):
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, asked)
    same("workspace_bytes", asked, config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE))


def _set_capabilities(trt: Any, config: Any, asked: list[str]) -> None:
    if not asked:
        return
    known = _capabilities(trt)
    same("compute_capabilities", asked, [capability for capability in asked if capability in known])
    config.num_compute_capabilities = len(asked)
    for index, capability in enumerate(asked):
        config.set_compute_capability(known[capability], index)
    names = {member: capability for capability, member in known.items()}
    got = [config.get_compute_capability(index) for index in range(config.num_compute_capabilities)]
    same("compute_capabilities", asked, [names.get(member, member.name) for member in got])


def _add_profile(
    builder: Any, config: Any, number: int, ranges: dict[str, dict[str, Any]], inputs: Collection[str]
) -> None:
    profile = builder.create_optimization_profile()
    for name, extents in ranges.items():
        three = [extents["min"], extents["opt"], extents["max"]]
        if name not in inputs:
            raise Ends(_no_profile(number, name, f"the model has no such input, only {', '.join(sorted(inputs))}"))
        if not _set_range(profile, name, three, bool(extents.get("values"))):
            raise Ends(_no_profile(number, name, f"the builder refuses min, opt, max = {three}"))
    if config.add_optimization_profile(profile) < 0:
        raise Ends(_no_profile(number, None, "the builder refuses it"))


def _set_range(profile: Any, name: str, three: list[list[int]], values: bool) -> bool:
    set_three, get_three = (
        (profile.set_shape_input, profile.get_shape_input) if values else (profile.set_shape, profile.get_shape)
    )
    try:
        set_three(name, *three)
        return [list(extents) for extents in get_three(name)] == three
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False


def _no_profile(number: int, name: str | None, why: str) -> Failed:
    where = {"profile": number} | ({"input": name} if name is not None else {})
    return Failed("profile_invalid", f"Profile {number}{f', input {name}' if name else ''}: {why}.", where=where)


def _serialize(
    trt: Any, builder: Any, network: Any, config: Any, log: NativeLog, phases: PhaseLog, stop: threading.Event
) -> Any:
    """Return the plan, as the builder's own memory. A stop that came at any time wins over a plan that came out."""
    log.enter_stage()
    refused = threading.Event()
    config.progress_monitor = monitor_for(trt, phases, stop, refused)
    unless_stopped(stop)
    plan = builder.build_serialized_network(network, config)
    if stop.is_set() and (plan is not None or refused.is_set()):
        raise Ends(Stopped("monitor" if refused.is_set() else "between_stages"))
    if plan is None:  # not cancelled: the builder returns the same for both, and only we know who was asked
        raise Ends(build_failure(log.first_error))
    return plan

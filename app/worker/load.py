"""In a child, on a GPU: deserialize an engine that was just built, say what it is, and measure it where that is asked."""

import importlib
import mmap
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from app.worker.contexts import give_shapes, measurements, names
from app.worker.cuda import CudaFailed
from app.worker.inspector import MOST_BYTES, count, layers, length, read
from app.worker.messages import Failed, Loaded, LoadRequest, Stopped
from app.worker.native_log import NativeLog, logger_for
from app.worker.plugins import Unusable
from app.worker.plugins import load as load_plugins
from app.worker.scrub import Scrubber
from app.worker.verdict import first_line

T = TypeVar("T")


def load(request: LoadRequest, stop: threading.Event, scrub: Scrubber) -> Loaded | Failed | Stopped:
    """Return what the engine says of itself. Never raises for what the runtime refuses."""
    trt = importlib.import_module(request.builder)
    log = NativeLog(lambda _: None, scrub)
    logger = logger_for(trt, log)
    runtime = trt.Runtime(logger)
    if own := getattr(trt, "init_libnvinfer_plugins", None):  # TensorRT's own plugins, which an engine may need
        own(logger, "")
    try:
        load_plugins(trt, request.plugins)
    except Unusable as unusable:
        return Failed("plugin_unusable", str(unusable), log.first_error, where={"plugin": unusable.plugin})
    runtime.engine_host_code_allowed = request.host_code
    began = perf_counter()
    engine = _deserialized(runtime, request.plan)
    seconds = perf_counter() - began
    if engine is None:
        return Failed("engine_unloadable", f"The runtime refuses it: {first_line(log.first_error)}", log.first_error)
    if stop.is_set():
        return Stopped("between_stages")
    return _told(trt, engine, request, log, stop, seconds, scrub)


def _deserialized(runtime: Any, plan: str) -> Any:
    with Path(plan).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return runtime.deserialize_cuda_engine(content)


def _told(
    trt: Any,
    engine: Any,
    request: LoadRequest,
    log: NativeLog,
    stop: threading.Event,
    seconds: float,
    scrub: Scrubber,
) -> Loaded | Stopped:
    found, warnings = _inspected(trt, engine, request, scrub)
    types = layers(found) if found else {}
    if found and (left := count(found) - len(types)):
        warnings.append(f"Of the engine's layers {left} are left out of the manifest, beyond the first {len(types)}.")
    if found and (size := length(found)) > MOST_BYTES:
        warnings.append(f"What the engine inspector says is left out of the manifest: it has {size} bytes.")
        found = None
    points, failed = _measured(trt, engine, request, log, stop, scrub) if request.contexts else ([], [])
    if stop.is_set():
        return Stopped("between_stages")
    told = {
        "seconds": round(seconds, 3),
        "memory": _memory(trt, engine),
        "layers": types,
        "inspector": found,
        "measurements": points,
    }
    return Loaded(told, [*warnings, *failed])


def _measured(
    trt: Any, engine: Any, request: LoadRequest, log: NativeLog, stop: threading.Event, scrub: Scrubber
) -> tuple[list[dict[str, Any]], list[str]]:
    """Whatever goes wrong, what the engine has said of itself is worth keeping."""
    try:
        return measurements(trt, engine, request, log, stop)
    except Exception as error:
        sys.stderr.write(scrub(traceback.format_exc(), 1 << 14))
        return [], [scrub(f"Nothing was measured: {type(error).__name__}: {error}", 500)]


def _memory(trt: Any, engine: Any) -> dict[str, Any]:
    profiles = range(engine.num_optimization_profiles)
    return {
        "profiles": [_bytes(lambda n=n: engine.get_device_memory_size_for_profile_v2(n)) for n in profiles],  # type: ignore[misc]
        "context_bytes": _bytes(lambda: engine.device_memory_size_v2),
        "weights_bytes": _bytes(lambda: engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE)),
        "streamable_weights_bytes": _bytes(lambda: engine.streamable_weights_size),
    }


def _bytes(ask: Callable[[], Any]) -> int | None:
    """A figure that this version lacks, or gives a negative number for, is not told."""
    told = _asked(ask)
    return int(told) if told is not None and int(told) >= 0 else None


def _asked(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None


def _inspected(trt: Any, engine: Any, request: LoadRequest, scrub: Scrubber) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what the engine inspector says, with the optimal shapes where some are open: without, it tells less."""
    kind = trt.LayerInformationFormat.JSON
    inspector = engine.create_engine_inspector()
    shaped = _shaped(trt, engine, request.values)
    if shaped:
        inspector.execution_context = shaped[0]
    text = _asked(lambda: inspector.get_engine_information(kind))
    if not text:
        return None, ["The engine inspector says nothing."]
    try:
        return read(scrub(text, len(text))), []
    except ValueError as error:
        return None, [f"What the engine inspector says cannot be read: {error}."]


def _shaped(trt: Any, engine: Any, values: dict[str, list[int]]) -> list[Any]:
    """Return an execution context without memory that knows its shapes, and what it reads; nothing where none is open."""
    inputs = names(trt, engine, trt.TensorIOMode.INPUT)
    if not any(-1 in tuple(engine.get_tensor_shape(name)) for name in inputs):
        return []
    strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
    context = _asked(lambda: engine.create_execution_context(strategy))
    if context is None:
        return []
    try:
        return [context, *give_shapes(trt, engine, context, values)]
    except CudaFailed:
        return []

"""Give an engine other weights, in the child: the kernels that were chosen stay, and nothing is built."""

import importlib
import threading
from typing import Any

from app.worker.messages import Built, Failed, RefitRequest, Stage, Stopped
from app.worker.monitor import PhaseLog
from app.worker.native_log import NativeLog, logger_for
from app.worker.plan import read_plan, write_plan
from app.worker.plugins import Unusable, load
from app.worker.scrub import Scrubber
from app.worker.tensorrt import parser_version
from app.worker.verdict import MOST, Ends, first_line, unless_stopped


def refit(request: RefitRequest, phases: PhaseLog, stop: threading.Event, scrub: Scrubber) -> Built | Failed | Stopped:
    """Write the plan `base` with the weights of `model` to a new file. Never raises for what the builder refuses."""
    try:
        trt = importlib.import_module(request.builder)
        log = NativeLog(phases.say, scrub)
        logger = logger_for(trt, log)
        plugins = load(trt, request.plugins)
        phases.say(Stage("parse"))
        runtime = trt.Runtime(logger)
        runtime.engine_host_code_allowed = request.host_code
        engine = _loaded(runtime, request.base, log)
        refitter = _refitter(trt, engine, logger, log)
        unless_stopped(stop)
        _take_weights(trt, refitter, logger, request.model, log, scrub)
        unless_stopped(stop)
        phases.say(Stage("build"))
        log.enter_stage()
        if not refitter.refit_cuda_engine():
            raise Ends(_missing(refitter, log, scrub) or _refused("The builder did not take the weights", log))
        unless_stopped(stop)
        write_plan(request.plan, _serialized(trt, engine, request.keeps_refit))
        return Built(onnx_parser=parser_version(trt), plugins=plugins, **request.figures)
    except Ends as end:
        return end.outcome
    except Unusable as unusable:
        return Failed("plugin_unusable", str(unusable), log.first_error, where={"plugin": unusable.plugin})


def _loaded(runtime: Any, name: str, log: NativeLog) -> Any:
    engine = runtime.deserialize_cuda_engine(read_plan(name))
    if engine is None:
        raise Ends(_refused("The engine does not load", log))
    return engine


def _refitter(trt: Any, engine: Any, logger: Any, log: NativeLog) -> Any:
    """TensorRT's constructor raises where its own function returns no object."""
    try:
        return trt.Refitter(engine, logger)
    except TypeError as error:
        raise Ends(_refused("The engine was not built to be refitted", log)) from error


def _take_weights(trt: Any, refitter: Any, logger: Any, model: str, log: NativeLog, scrub: Scrubber) -> None:
    """Name every weight that the engine lacks; the parser's own word for it is only that there are some."""
    log.enter_stage()
    reader = trt.OnnxParserRefitter(refitter, logger)
    if reader.refit_from_file(model):
        return
    said = [reader.get_error(number).desc() for number in range(min(reader.num_errors, MOST))]
    raise Ends(_missing(refitter, log, scrub) or _refused("The model's weights do not fit", log, said, scrub))


def _missing(refitter: Any, log: NativeLog, scrub: Scrubber) -> Failed | None:
    if not (names := refitter.get_missing_weights()):
        return None
    where = {"missing": [scrub(name, 200) for name in sorted(names)[:MOST]], "count": len(names)}
    message = f"The model has no weights that fit for {len(names)} names of the engine."
    return Failed("weights_missing", message, log.first_error, where)


def _refused(what: str, log: NativeLog, said: list[str] | None = None, scrub: Scrubber | None = None) -> Failed:
    native = log.first_error or (scrub("\n".join(said)) if said and scrub else None)
    return Failed("refit_failed", f"{what}: {first_line(native)}", native)


def _serialized(trt: Any, engine: Any, keeps_refit: bool) -> Any:
    """With its weights, also where they were stripped: only then is it whole."""
    serialization = engine.create_serialization_config()
    serialization.clear_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    if keeps_refit:
        serialization.set_flag(trt.SerializationFlag.INCLUDE_REFIT)
    return engine.serialize_with_config(serialization)

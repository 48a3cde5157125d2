"""`python -m benchmarks.refit FLAG MODEL`: build with a flag, load, refit; print each step's result as JSON.

It only records: whatever a builder or a driver makes of it is the answer. A crash is seen by who started it.
"""

import importlib
import json
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

FLAGS = {"plain": (), "refit": ("REFIT",), "strip": ("STRIP_PLAN",)}
WORDS = 5  # of the builder's complaints kept per step


def main(flag: str, model: str) -> None:
    trt: Any = importlib.import_module("tensorrt_rtx")
    complaints: list[str] = []
    logger = _logger(trt, complaints)

    def step(name: str, work: Callable[[], Any]) -> Any:
        complaints.clear()
        began = monotonic()
        try:
            made, error = work(), None
        except Exception as raised:
            made, error = None, f"{type(raised).__name__}: {raised}"
        done = made is not None and made is not False
        said = {"step": name, "done": done, "seconds": round(monotonic() - began, 3)}
        value = made if isinstance(made, str | int) else None
        print(json.dumps(said | {"value": value, "error": error, "log": complaints[:WORDS]}), flush=True)
        return made if done else None

    plan = step("build", lambda: _build(trt, logger, model, FLAGS[flag]))
    if plan is None:
        return
    print(json.dumps({"step": "size", "done": True, "bytes": len(memoryview(plan))}), flush=True)
    runtime = step("runtime", lambda: trt.Runtime(logger))
    if runtime is None:
        return
    step("validity", lambda: str(runtime.get_engine_validity(plan)))
    engine = step("deserialize", lambda: runtime.deserialize_cuda_engine(plan))
    if engine is None or flag == "plain":
        return
    refitter = step("refitter", lambda: trt.Refitter(engine, logger))
    if refitter is None:
        return
    step("missing", lambda: len(refitter.get_missing_weights()))
    parser = step("parser_refitter", lambda: trt.OnnxParserRefitter(refitter, logger))
    if parser is not None and step("read_weights", lambda: parser.refit_from_file(model)):
        step("refit", refitter.refit_cuda_engine)


def _build(trt: Any, logger: Any, model: str, flags: tuple[str, ...]) -> Any:
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(model):
        raise RuntimeError("the model does not parse")
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    return builder.build_serialized_network(network, config)


def _logger(trt: Any, complaints: list[str]) -> Any:
    class Complaints(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                complaints.append(message[:300])

    return Complaints()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

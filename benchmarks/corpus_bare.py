"""The builder called directly, on one model after the other: `python -m benchmarks.corpus_bare LEVEL WORKSPACE CAPABILITIES`.

Reads `{"name", "path", "profiles"}` a line from stdin and answers `{"name", "verdict", "says"}` a line. A model that
crashes the builder ends it; whoever asked sees which one was not answered.
"""

import importlib
import json
import os
import sys
from typing import Any

from benchmarks.bare import configured

BUILT, NOT_PARSED, NOT_BUILT = "builds", "does not parse", "does not build"


def main(level: int, workspace: int, capabilities: list[str]) -> None:
    trt = importlib.import_module("tensorrt_rtx")
    for line in sys.stdin:
        asked = json.loads(line)
        verdict, says = verdict_on(trt, asked["path"], asked["profiles"], level, workspace, capabilities)
        print(json.dumps({"name": asked["name"], "verdict": verdict, "says": says}), flush=True)
    os._exit(0)


def verdict_on(
    trt: Any, path: str, profiles: list[dict[str, Any]], level: int, workspace: int, capabilities: list[str]
) -> tuple[str, str]:
    """Return what becomes of a model, and the parser's first complaint."""
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(path):
        return NOT_PARSED, parser.get_error(0).desc()[:500] if parser.num_errors else ""
    config = configured(trt, builder, level, workspace, capabilities)
    for ranges in profiles:
        profile = builder.create_optimization_profile()
        for name, asked in ranges.items():
            put = profile.set_shape_input if asked.get("values") else profile.set_shape
            put(name, asked["min"], asked["opt"], asked["max"])
        config.add_optimization_profile(profile)
    return (BUILT if builder.build_serialized_network(network, config) is not None else NOT_BUILT), ""


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","))

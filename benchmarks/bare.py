"""The builder without a service, in a fresh process: `python -m benchmarks.bare MODEL PLAN LEVEL WORKSPACE CC,CC`.

The floor of what a build costs: import, parse, configure the same, build, write the plan. No monitor, no logs.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any


def main(model: str, plan: Path, level: int, workspace: int, capabilities: list[str]) -> None:
    trt = importlib.import_module("tensorrt_rtx")
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(model):
        raise SystemExit(f"{model} cannot be parsed")
    config = configured(trt, builder, level, workspace, capabilities)
    built = builder.build_serialized_network(network, config)
    if built is None:
        raise SystemExit(f"{model} cannot be built")
    plan.write_bytes(memoryview(built))
    os._exit(0)  # as the service's child: native libraries are not torn down


def configured(trt: Any, builder: Any, level: int, workspace: int, capabilities: list[str]) -> Any:
    """Return a configuration as the service makes it."""
    config = builder.create_builder_config()
    config.builder_optimization_level = level
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace)
    config.num_compute_capabilities = len(capabilities)
    for index, capability in enumerate(capabilities):
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}"), index)
    return config


if __name__ == "__main__":
    _, model, plan, level, workspace, capabilities = sys.argv
    main(model, Path(plan), int(level), int(workspace), capabilities.split(","))

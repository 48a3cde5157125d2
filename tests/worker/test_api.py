"""Every name of TensorRT's Python API that the child touches exists in 10.16, 11.4 and TensorRT for RTX.

The names are read from the modules themselves. What they are asked of is told by the variable: one word per thing.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from tests.worker.bindings import bindings

WORKER = Path(__file__).parents[2] / "app" / "worker"
CLASSES = {  # variable → class of the API
    "builder": "Builder",
    "config": "IBuilderConfig",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "profile": "IOptimizationProfile",
    "layer": "ILayer",
    "tensor": "ITensor",
    "cache": "ITimingCache",
    "registry": "IPluginRegistry",
    "creator": "IPluginCreatorV3One",
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "inspector": "EngineInspector",
}
LOADED = {
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "refitter": "Refitter",
    "reader": "OnnxParserRefitter",
    "serialization": "ISerializationConfig",
}
MODULES = {
    **dict.fromkeys(("tensorrt", "options", "timing_cache", "monitor", "native_log", "consult", "plugins"), CLASSES),
    **dict.fromkeys(("load", "contexts"), CLASSES),
    "verdict": {**CLASSES, "error": "ParserError"},
    "refit": LOADED,
}
OURS = frozenset(  # variables of our own, of Python's or of TensorRT's enumerations
    [
        "WAYS",
        "_DTYPES",
        "_FIGURES",
        "_NOISE",
        "_NUMBERS",
        "asked",
        "buffer",
        "calls",
        "capability",
        "code",
        "ctypes",
        "cuda",
        "domains",
        "draft",
        "end",
        "errno",
        "error",
        "extents",
        "failed",
        "figures",
        "file",
        "graphs",
        "hashlib",
        "held",
        "importlib",
        "inputs",
        "itertools",
        "kept",
        "known",
        "lanes",
        "line",
        "live",
        "log",
        "member",
        "members",
        "missing",
        "mmap",
        "name",
        "named",
        "names",
        "native",
        "node",
        "onnx",
        "os",
        "path",
        "phases",
        "points",
        "ranges",
        "re",
        "refused",
        "report",
        "request",
        "select",
        "severity",
        "steps",
        "stop",
        "stream",
        "sys",
        "text",
        "thread",
        "threading",
        "time",
        "timings",
        "traceback",
        "tried",
        "unusable",
        "value",
        "values",
        "wake",
        "warnings",
        "way",
        "writable",
    ]
)
ONLY_RTX = {  # asked for only where `ComputeCapability` exists
    "ComputeCapability",
    "IBuilderConfig.num_compute_capabilities",
    "IBuilderConfig.set_compute_capability",
    "IBuilderConfig.get_compute_capability",
}
_TELLS = """
import importlib, json, sys
trt = importlib.import_module(sys.argv[1])
def there(name):
    at = trt
    for part in name.split("."):
        if not hasattr(at, part):
            return False
        at = getattr(at, part)
    return True
print(json.dumps([name for name in json.load(sys.stdin) if not there(name)]))
"""


def touched() -> set[str]:
    return {name for module, classes in MODULES.items() for name in _touched(_tree(module), classes)}


def _tree(module: str) -> ast.Module:
    return ast.parse((WORKER / f"{module}.py").read_text())


def _touched(tree: ast.Module, classes: dict[str, str]) -> Iterator[str]:
    for root, *rest in _paths(tree):
        if root == "trt":
            yield ".".join(takewhile(lambda name: name not in ("__members__", "__init__"), rest))
        elif root in classes:
            yield f"{classes[root]}.{rest[0]}"


def _paths(tree: ast.Module) -> Iterator[list[str]]:
    """Yield each chain of names, `a.b.c`, and what `getattr(a, "b", …)` asks for."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if (path := _path(node)) and len(path) > 1:
                yield path
            case ast.Call(ast.Name("getattr"), [ast.Name(root), ast.Constant(str() as name), *_]):
                yield [root, name]


def _path(node: ast.expr) -> list[str] | None:
    """Return the names of `a.b.c`, `self._a.b` without `self._`; None for anything else."""
    match node:
        case ast.Name(name):
            return [name]
        case ast.Attribute(ast.Name("self"), name):
            return [name.lstrip("_")]
        case ast.Attribute(value, name):
            path = _path(value)
            return [*path, name] if path else None
    return None


def missing(flavour: str, environment: dict[str, str], names: set[str]) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", _TELLS, flavour],
        input=json.dumps(sorted(names)).encode(),
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    return set(json.loads(ran.stdout))


def test_what_is_touched_is_found_in_the_modules():
    names = touched()
    assert {
        "Builder.build_serialized_network",
        "BuilderFlag.ERROR_ON_TIMING_CACHE_MISS",
        "IBuilderConfig.set_tactic_sources",
        "ICudaEngine.get_device_memory_size_for_profile_v2",
        "IExecutionContext.execute_async_v3",
        "EngineInspector.get_engine_information",
        "Runtime.deserialize_cuda_engine",
        "INetworkDefinition.get_input",
        "IOptimizationProfile.set_shape",
        "ITimingCache.serialize",
        "OnnxParser.parse_from_file",
        "OnnxParserRefitter.refit_from_file",
    } <= names
    assert len(names) > 50


def test_every_variable_that_is_asked_for_something_is_known():
    for module in MODULES:
        asked = {path[0] for path in _paths(_tree(module))}
        assert asked - MODULES[module].keys() - {"trt"} <= OURS, module


def test_all_of_it_exists_in_tensorrt_10(tmp_path):
    assert missing("tensorrt", bindings("10", tmp_path), touched()) <= ONLY_RTX


def test_all_of_it_exists_in_tensorrt_11(tensorrt_11):
    assert missing("tensorrt", tensorrt_11, touched()) == ONLY_RTX


def test_all_of_it_exists_in_tensorrt_for_rtx():
    assert missing("tensorrt_rtx", {}, touched()) == set()


@pytest.mark.parametrize("name", ["BuilderFlag.FP16", "Builder.no_such_thing"])
def test_what_is_gone_is_missed(tensorrt_11, name):
    assert missing("tensorrt", tensorrt_11, {name}) == {name}

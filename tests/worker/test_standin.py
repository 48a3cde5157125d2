"""The stand-in has nothing that TensorRT's own classes lack, so nothing can rest on what only it does."""

import json
import os
import subprocess
import sys

_TELLS = """
import inspect, json
import tensorrt as standin, tensorrt_bindings as real
def ours(value):
    return value.__module__.partition(".")[0] == "tensorrt"
own = [value for value in vars(standin).values() if inspect.isclass(value) and ours(value)]
print(json.dumps({"classes": [one.__name__ for one in own], "extra": [
    f"{one.__name__}.{name}" for one in own for part in one.__mro__ if ours(part) for name in vars(part)
    if not name.startswith("_") and not hasattr(getattr(real, one.__name__, None), name)
]}))
"""


def test_every_name_of_it_is_one_of_the_real_bindings(standin_11):
    told = subprocess.run(
        [sys.executable, "-c", _TELLS], env=os.environ | standin_11, capture_output=True, text=True, check=True
    )
    found = json.loads(told.stdout)
    assert {"Builder", "Runtime", "Refitter", "ICudaEngine", "IExecutionContext", "EngineInspector"} <= set(
        found["classes"]
    )
    assert found["extra"] == []

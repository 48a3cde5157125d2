"""`import tensorrt` for a machine that we do not have: TensorRT's own 11.4 bindings with a runtime that needs no GPU.

Parser, network, configuration and build are the real ones. A plan begins with a line of JSON about its weights, and what
NVIDIA's runtime does with a plan on a GPU is scripted here: it shows that we ask rightly, not what a GPU makes of it.
"""

import hashlib
import json
from pathlib import Path

import onnx
import tensorrt_bindings as real
from tensorrt_bindings import *
from tensorrt_bindings import __version__ as __version__

from tensorrt import execution
from tensorrt.execution import EngineInspector as EngineInspector
from tensorrt.execution import IExecutionContext as IExecutionContext

_REFITS = {"identical": real.BuilderFlag.REFIT_IDENTICAL, "all": real.BuilderFlag.REFIT}
_parsed = {}  # network → file of its model


class OnnxParser(real.OnnxParser):
    def __init__(self, network, logger):
        super().__init__(network, logger)
        self._of = network

    def parse_from_file(self, name):
        _parsed[id(self._of)] = name
        return super().parse_from_file(name)


class Builder(real.Builder):
    """Leaves to the real one what it can do without a GPU, and writes down what was asked for besides."""

    _profiles = ()

    def create_optimization_profile(self):
        self._profiles = [*self._profiles, super().create_optimization_profile()]
        return self._profiles[-1]

    def build_serialized_network(self, network, config):
        refit = next((name for name, flag in _REFITS.items() if config.get_flag(flag)), "none")
        stripped = config.get_flag(real.BuilderFlag.STRIP_PLAN)
        libraries = [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in config.plugins_to_serialize]
        config.plugins_to_serialize = []
        for flag in (*_REFITS.values(), real.BuilderFlag.STRIP_PLAN, real.BuilderFlag.VERSION_COMPATIBLE):
            config.clear_flag(flag)
        plan = super().build_serialized_network(network, config)
        if plan is None:
            return None
        about = {
            "refit": refit,
            "weights": _weights(_parsed[id(network)]),
            "stripped": stripped,
            "libraries": libraries,
            "run": execution.about(network, config, self._profiles),
        }
        return _plan(about, bytes(plan))


class Runtime:
    """Takes the plans of this builder, and no others."""

    engine_host_code_allowed = False

    def __init__(self, logger):
        self.logger = logger

    def deserialize_cuda_engine(self, plan):
        line, _, rest = bytes(plan).partition(b"\n")
        try:
            return self._engine(json.loads(line), rest)
        except ValueError:
            self.logger.log(real.ILogger.ERROR, "Error Code 6: Serialization assertion header magic failed.")
            return None

    def _engine(self, about, rest):
        if about.get("run", {}).get("host_code") and not self.engine_host_code_allowed:
            self.logger.log(real.ILogger.ERROR, "Error Code 3: API Usage Error (engine host code is not allowed.)")
            return None
        return ICudaEngine(about, rest, self.logger)


class ICudaEngine(execution.Executable):
    def __init__(self, about, rest, logger):
        self._about, self._rest, self._logger = about, rest, logger

    @property
    def refittable(self):
        return self._about["refit"] != "none"

    def create_serialization_config(self):
        return ISerializationConfig()

    def serialize_with_config(self, config):
        about = dict(self._about)
        if not config.get_flag(real.SerializationFlag.INCLUDE_REFIT):
            about["refit"] = "none"
        about["stripped"] = config.get_flag(real.SerializationFlag.EXCLUDE_WEIGHTS)
        return _plan(about, self._rest)


class ISerializationConfig:
    """Without weights until told otherwise, as for the engine of a stripped plan."""

    def __init__(self):
        self._flags = {real.SerializationFlag.EXCLUDE_WEIGHTS}

    def set_flag(self, flag):
        self._flags.add(flag)

    def clear_flag(self, flag):
        self._flags.discard(flag)

    def get_flag(self, flag):
        return flag in self._flags


class Refitter:
    def __init__(self, engine, logger):
        self._about, self.logger, self._given = engine._about, logger, {}
        if not engine.refittable:
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def get_all_weights(self):
        return list(self._about["weights"])

    def get_missing_weights(self):
        return [name for name in self._about["weights"] if name not in self._given]

    def refit_cuda_engine(self):
        if self.get_missing_weights():
            return False
        self._about["weights"] |= self._given
        return True


class OnnxParserRefitter:
    def __init__(self, refitter, logger):
        self._refitter, self.logger, self.num_errors = refitter, logger, 0

    def refit_from_file(self, name):
        wanted = self._refitter._about["weights"]
        for weight, (count, digest) in _weights(name).items():
            if weight in wanted and wanted[weight][0] != count:
                self.num_errors = 1
                self.logger.log(real.ILogger.ERROR, f"Error Code 3: {weight}: count of weights has changed.")
                return False
            if weight in wanted:
                self._refitter._given[weight] = (count, digest)
        return not self._refitter.get_missing_weights()


def _weights(name):
    """Initializer → number of bytes, digest of its bytes."""
    tensors = onnx.load(name).graph.initializer
    content = {one.name: onnx.numpy_helper.to_array(one).tobytes() for one in tensors}
    return {one: (len(data), hashlib.sha256(data).hexdigest()) for one, data in content.items()}


def _plan(about, rest):
    return json.dumps(about, sort_keys=True).encode() + b"\n" + rest

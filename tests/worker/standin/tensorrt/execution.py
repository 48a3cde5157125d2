"""What the stand-in's engines say of themselves, and how they run: not at all, but only when all that it takes was given.

A plan's line of JSON has under "run":
  io         [{"name", "input", "shape", "dtype", "host"}]; an output's -1 depends on data where no input is open
  profiles   [{input: [min, opt, max]}], also of the values of inputs on the host
  inspector  what the engine inspector says, with "N/A due to dynamic shapes" where shapes are open and nobody set them
  host_code  true: it brings code, which must be allowed
  refuses    "contexts", "runs", "captures": what fails
"""

import ctypes
import json

import tensorrt_bindings as real

_WORDS = {"FLOAT": "Float", "HALF": "Half", "BF16": "BFloat16", "INT8": "Int8", "INT32": "Int32", "INT64": "Int64"}
_WIDTHS = {"FLOAT": 4, "HALF": 2, "BF16": 2, "INT8": 1, "INT32": 4, "INT64": 8, "BOOL": 1}
_NUMBERS = {"INT32": ctypes.c_int32, "INT64": ctypes.c_int64}
_HEADROOM = 1 << 20  # bytes of device memory that a profile's context needs, times its number


def about(network, config, profiles):
    """Say of a network what its engine will be asked."""
    inputs = [network.get_input(n) for n in range(network.num_inputs)]
    outputs = [network.get_output(n) for n in range(network.num_outputs)]
    ranges = [{t.name: [list(d) for d in p.get_shape(t.name)] for t in inputs} for p in profiles]
    return {
        "io": [_tensor(t, True) for t in inputs] + [_tensor(t, False) for t in outputs],
        "profiles": [{name: three for name, three in one.items() if three} for one in ranges],
        "inspector": _inspector(network, config.profiling_verbosity),
    }


def _tensor(tensor, given):
    return {"name": tensor.name, "input": given, "shape": list(tensor.shape), "dtype": tensor.dtype.name, "host": False}


def _inspector(network, verbosity):
    layers = [network.get_layer(n) for n in range(network.num_layers)]
    if verbosity != real.ProfilingVerbosity.DETAILED:
        return {"Layers": [layer.name for layer in layers]}
    return {"Layers": [_layer(layer) for layer in layers], "I/O Tensors": []}


def _layer(layer):
    outputs = [layer.get_output(n) for n in range(layer.num_outputs)]
    told = [{"Name": t.name, "Location": "Device", "Datatype": _WORDS.get(t.dtype.name, t.dtype.name)} for t in outputs]
    return {"Name": layer.name, "LayerType": layer.type.name, "Inputs": [], "Outputs": told}


class Executable:
    """Of an engine: what is asked before and while it runs. `_about` is its line of JSON, `_logger` the runtime's."""

    @property
    def _run(self):
        return self._about.get("run", {})

    def _io(self, name):
        return next(t for t in self._run["io"] if t["name"] == name)

    @property
    def _open(self):
        return any(t["input"] and -1 in t["shape"] for t in self._run["io"])

    @property
    def num_io_tensors(self):
        return len(self._run["io"])

    @property
    def num_optimization_profiles(self):
        return max(1, len(self._run.get("profiles", ())))

    @property
    def device_memory_size_v2(self):
        return self.num_optimization_profiles * _HEADROOM

    @property
    def streamable_weights_size(self):
        return 0

    def get_device_memory_size_for_profile_v2(self, profile_index):
        return (profile_index + 1) * _HEADROOM

    def get_engine_stat(self, stat):
        return 7 if stat == real.EngineStat.TOTAL_WEIGHTS_SIZE else -1

    def get_tensor_name(self, index):
        return self._run["io"][index]["name"]

    def get_tensor_mode(self, name):
        return real.TensorIOMode.INPUT if self._io(name)["input"] else real.TensorIOMode.OUTPUT

    def get_tensor_shape(self, name):
        return real.Dims(self._io(name)["shape"])

    def get_tensor_dtype(self, name):
        return getattr(real.DataType, self._io(name)["dtype"])

    def get_tensor_bytes_per_component(self, name):
        return _WIDTHS[self._io(name)["dtype"]]

    def get_tensor_location(self, name):
        return real.TensorLocation.HOST if self._io(name)["host"] else real.TensorLocation.DEVICE

    def get_tensor_profile_shape(self, name, profile_index):
        return [real.Dims(shape) for shape in self._run["profiles"][profile_index][name]]

    def create_execution_context(self, strategy=real.ExecutionContextAllocationStrategy.STATIC):
        if "contexts" in self._run.get("refuses", ()):
            self._logger.log(real.ILogger.ERROR, "Error Code 2: OutOfMemory (Requested size was 99 bytes.)")
            return None
        return IExecutionContext(self, strategy)

    def create_engine_inspector(self):
        return EngineInspector(self)


class EngineInspector:
    execution_context = None

    def __init__(self, engine):
        self._engine = engine

    def get_engine_information(self, format):
        assert format == real.LayerInformationFormat.JSON
        said = self._engine._run["inspector"]
        text = said if isinstance(said, str) else json.dumps(said)
        if self._engine._open and not (self.execution_context and self.execution_context._shapes):
            text = text.replace("Row major linear FP32", "N/A due to dynamic shapes")
        return text


class IExecutionContext:
    _alive = 0

    def __init__(self, engine, strategy):
        self._engine, self._logger, self._strategy = engine, engine._logger, strategy
        self._profile, self._shapes, self._addresses, self._allocators = None, {}, {}, {}
        self._tell(1)

    def __del__(self):
        self._tell(-1)

    def _tell(self, by):
        IExecutionContext._alive += by
        self._logger.log(real.ILogger.INFO, f"execution contexts: {IExecutionContext._alive}")

    def set_optimization_profile_async(self, profile_index, stream_handle):
        self._profile = profile_index
        return profile_index < self._engine.num_optimization_profiles

    def set_input_shape(self, name, shape):
        least, _, most = self._engine.get_tensor_profile_shape(name, self._profile or 0)
        fits = all(low <= extent <= high for low, extent, high in zip(least, shape, most, strict=True))
        self._shapes |= {name: list(shape)} if fits else {}
        return fits

    def get_tensor_shape(self, name):
        known = self._shapes.get(name, self._engine._io(name)["shape"])
        if self._engine._io(name)["input"] or not self._engine._open:
            return real.Dims(known)
        first = next(iter(self._shapes.values()), [-1])[0]
        return real.Dims([first if extent == -1 else extent for extent in known])

    def infer_shapes(self):
        given = self._shapes.keys() | self._addresses.keys()
        return [t["name"] for t in self._engine._run["io"] if self._must(t) and t["name"] not in given]

    def _must(self, tensor):
        return tensor["input"] and (tensor["host"] or -1 in tensor["shape"])

    def set_tensor_address(self, name, memory):
        self._addresses[name] = memory
        return True

    def set_output_allocator(self, name, output_allocator):
        self._allocators[name] = output_allocator
        return True

    def execute_async_v3(self, stream_handle):
        if why := self._why_not(stream_handle):
            self._logger.log(real.ILogger.ERROR, f"IExecutionContext::enqueueV3: Error Code 3: API Usage Error ({why})")
        return not why

    def _why_not(self, stream):
        if "runs" in self._engine._run.get("refuses", ()):
            return "it never runs"
        if not stream or self._profile != 0 or self._strategy != real.ExecutionContextAllocationStrategy.STATIC:
            return "no stream, profile or memory"
        capturing = ctypes.c_int.from_address(stream).value  # the first field of a stream of ours
        if capturing and "captures" in self._engine._run.get("refuses", ()):
            return "a loop on the host cannot be captured"
        for tensor in self._engine._run["io"]:
            name = tensor["name"]
            if allocator := self._allocators.get(name):
                size = 5 * _WIDTHS[tensor["dtype"]]
                self._addresses[name] = allocator.reallocate_output_async(name, 0, size, 256, stream)
                allocator.notify_shape(name, real.Dims([5]))
            if not self._addresses.get(name):
                return f"{name} has no address"
            if tensor["host"] and tensor["input"] and not self._fits(tensor):
                return f"the values of {name} are not in its profile"
        return None

    def _fits(self, tensor):
        least, _, most = self._engine._run["profiles"][0][tensor["name"]]
        read = (_NUMBERS[tensor["dtype"]] * len(least)).from_address(self._addresses[tensor["name"]])
        return all(low <= value <= high for low, value, high in zip(least, read, most, strict=True))

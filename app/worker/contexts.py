"""In a child: execution contexts of an engine, each with a stream and buffers of its own, as lanes to measure."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from math import prod
from typing import Any

from app.worker.cuda import Buffer, Cuda, CudaFailed, CudaMissing, NotCapturable, OutOfMemory, Stream
from app.worker.lanes import Lane, measure, steps
from app.worker.messages import LoadRequest
from app.worker.native_log import NativeLog
from app.worker.verdict import first_line

PROFILE, OPT = 0, 1  # what is measured: the optimal shapes of the first optimization profile
_NUMBERS = {"INT32": ctypes.c_int32, "INT64": ctypes.c_int64, "BOOL": ctypes.c_bool}  # of inputs that decide shapes


class Unrunnable(CudaFailed):
    """The engine does not run as it should be measured."""


def measurements(
    trt: Any, engine: Any, request: LoadRequest, log: NativeLog, stop: threading.Event
) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure 1, 2, 4, … contexts at once, CUDA graphs off and on; return fields of `Measurement`, and warnings.

    What goes wrong ends it: what was measured until then stays.
    """
    try:
        cuda = Cuda()
    except (CudaMissing, CudaFailed) as error:
        return [], [f"Nothing was measured: {error}."]
    points: list[dict[str, Any]] = []
    warnings: list[str] = []
    try:
        with closing(cuda):
            _measure(trt, engine, cuda, request, log, stop, points, warnings)
    except CudaFailed as error:
        warnings.append(f"CUDA did not take back what was measured with: {error}.")
    return points, warnings


def _measure(
    trt: Any,
    engine: Any,
    cuda: Cuda,
    request: LoadRequest,
    log: NativeLog,
    stop: threading.Event,
    points: list[dict[str, Any]],
    warnings: list[str],
) -> None:
    lanes: list[Lane] = []
    graphs, most = [False, True], 0
    try:
        with ExitStack() as held:
            for most in steps(request.contexts):
                while len(lanes) < most:
                    lanes.append(held.enter_context(_lane(trt, engine, cuda, request.values, log)))
                for graph in list(graphs):
                    if stop.is_set():
                        return
                    try:
                        points.append(measure(cuda, lanes, graph, request.seconds, stop))
                    except NotCapturable as error:
                        graphs.remove(True)
                        warnings.append(f"Not measured with CUDA graphs: the engine cannot be captured ({error}).")
    except OutOfMemory as error:
        warnings.append(
            f"The memory of the GPU does not suffice to measure {most} execution contexts at once ({error})."
        )
    except CudaFailed as error:
        warnings.append(f"Measuring {most} execution contexts failed: {error}.")


@contextmanager
def _lane(trt: Any, engine: Any, cuda: Cuda, values: dict[str, list[int]], log: NativeLog) -> Iterator[Lane]:
    with ExitStack() as held:
        log.enter_stage()
        stream = held.enter_context(closing(cuda.stream()))
        context = engine.create_execution_context()
        if context is None:
            raise OutOfMemory(first_line(log.first_error))
        if not context.set_optimization_profile_async(PROFILE, int(stream)):
            raise Unrunnable(f"the engine refuses its first profile: {first_line(log.first_error)}")
        stream.synchronize()
        kept = give_shapes(trt, engine, context, values)
        kept += _give_buffers(trt, engine, context, cuda, stream, held)
        stream.synchronize()
        yield Lane(stream, _enqueue(context, stream, log, kept))


def _enqueue(context: Any, stream: Stream, log: NativeLog, kept: list[Any]) -> Callable[[], None]:
    """`kept`: what the context reads and writes lives as long as what is returned."""
    handle = int(stream)

    def enqueue(_kept: list[Any] = kept) -> None:
        if not context.execute_async_v3(handle):
            raise Unrunnable(f"the engine does not run: {first_line(log.first_error)}")

    return enqueue


def names(trt: Any, engine: Any, mode: Any) -> list[str]:
    found = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
    return [name for name in found if engine.get_tensor_mode(name) == mode]


def give_shapes(trt: Any, engine: Any, context: Any, values: dict[str, list[int]]) -> list[Any]:
    """Set what the shapes follow from; return the memory that it lies in. Raises `Unrunnable`."""
    kept = []
    for name in names(trt, engine, trt.TensorIOMode.INPUT):
        if -1 in tuple(engine.get_tensor_shape(name)):
            shape = tuple(engine.get_tensor_profile_shape(name, PROFILE)[OPT])
            if not context.set_input_shape(name, shape):
                raise Unrunnable(f"the engine refuses {shape} of {name}")
        if _on_host(trt, engine, name):
            kept.append(_numbers(engine, context, name, values.get(name, [])))
            context.set_tensor_address(name, ctypes.addressof(kept[-1]))
    try:
        missing = context.infer_shapes()
    except RuntimeError as error:
        raise Unrunnable(f"the shapes cannot be inferred: {first_line(str(error))}") from error
    if missing:
        raise Unrunnable(f"the shapes do not follow, for lack of {', '.join(missing)}")
    return kept


def _on_host(trt: Any, engine: Any, name: str) -> bool:
    return bool(engine.get_tensor_location(name) == trt.TensorLocation.HOST)


def _numbers(engine: Any, context: Any, name: str, values: list[int]) -> Any:
    """Memory of the host with the profile's values, or zeros."""
    kind = _NUMBERS.get(engine.get_tensor_dtype(name).name, ctypes.c_int64)
    room = max(1, prod(context.get_tensor_shape(name)), len(values))
    return (kind * room)(*values)


def _give_buffers(trt: Any, engine: Any, context: Any, cuda: Cuda, stream: Stream, held: ExitStack) -> list[Any]:
    """Give every other tensor its memory; return what has to live on. Raises `OutOfMemory`."""
    kept: list[Any] = []
    for name in names(trt, engine, trt.TensorIOMode.INPUT):
        if not _on_host(trt, engine, name):
            buffer = held.enter_context(closing(cuda.allocate(_size(engine, context, name))))
            buffer.fill(stream)
            context.set_tensor_address(name, int(buffer))
    for name in names(trt, engine, trt.TensorIOMode.OUTPUT):
        if -1 in tuple(context.get_tensor_shape(name)):  # its shape depends on what is computed
            kept.append(_allocator_for(trt, cuda, held))
            context.set_output_allocator(name, kept[-1])
        elif _on_host(trt, engine, name):
            kept.append(ctypes.create_string_buffer(_size(engine, context, name)))
            context.set_tensor_address(name, ctypes.addressof(kept[-1]))
        else:
            buffer = held.enter_context(closing(cuda.allocate(_size(engine, context, name))))
            context.set_tensor_address(name, int(buffer))
    return kept


def _size(engine: Any, context: Any, name: str) -> int:
    """Bytes of a tensor in linear format, which is what this service builds; a type of less than a byte counts as one."""
    return int(prod(context.get_tensor_shape(name)) * max(1, engine.get_tensor_bytes_per_component(name)))


def _allocator_for(trt: Any, cuda: Cuda, held: ExitStack) -> Any:
    """Return what gives an output as much memory as it turns out to need, at its first run."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self._buffer: Buffer | None = None

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            if self._buffer is None or self._buffer.size < size:
                try:
                    self._buffer = held.enter_context(closing(cuda.allocate(size)))
                except CudaFailed:
                    return 0  # the engine says that it got none
            return int(self._buffer)

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            pass

    return Allocator()

"""In a child: the CUDA driver through NVIDIA's own bindings, as far as it takes to run something on streams."""

import importlib
from collections.abc import Callable
from typing import Any

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream


class CudaMissing(Exception):
    """CUDA cannot be used here at all; the text says what to do."""


class CudaFailed(Exception):
    """A call of the driver failed; the text names it."""


class OutOfMemory(CudaFailed):
    """The GPU has no memory for it."""


class NotCapturable(CudaFailed):
    """What was enqueued cannot become a graph."""


class Cuda:
    """The primary context of the first GPU that this process sees, which TensorRT uses too. `close` gives it back."""

    def __init__(self) -> None:
        """Raises `CudaMissing`, `CudaFailed`."""
        try:
            self._driver = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise CudaMissing(
                "the package cuda-bindings is not installed; it comes with tensorrt-cu12 or -cu13"
            ) from error
        self.call("cuInit", 0)
        self._device = self.call("cuDeviceGet", 0)
        self._context = self.call("cuDevicePrimaryCtxRetain", self._device)
        self.use()

    def use(self) -> None:
        """Make it the context of this thread: once in each thread that calls anything here."""
        self.call("cuCtxSetCurrent", self._context)

    def close(self) -> None:
        self.call("cuDevicePrimaryCtxRelease", self._device)

    def stream(self) -> "Stream":
        return Stream(self, self.call("cuStreamCreate", NON_BLOCKING))

    def allocate(self, size: int) -> "Buffer":
        """Raises `OutOfMemory`."""
        return Buffer(self, self.call("cuMemAlloc", max(1, size)), max(1, size))

    def call(self, name: str, *arguments: Any) -> Any:
        """Return what the driver's function gives. Raises `CudaFailed`."""
        try:
            code, *values = getattr(self._driver, name)(*arguments)
        except RuntimeError as error:  # the bindings' own: no libcuda.so.1, or an old one that lacks this function
            raise CudaFailed(f"{name}: {error}") from error
        if code != self._driver.CUresult.CUDA_SUCCESS:
            kind = OutOfMemory if code == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY else CudaFailed
            raise kind(f"{name}: {code.name}")
        return values[0] if values else None

    def begin_capture(self, stream: Any) -> None:
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.call("cuStreamBeginCapture", stream, mode)


class Stream:
    def __init__(self, cuda: Cuda, handle: Any) -> None:
        """Only for `Cuda.stream`."""
        self._cuda, self.handle = cuda, handle

    def __int__(self) -> int:
        return int(self.handle)

    def synchronize(self) -> None:
        """Wait for all that is enqueued; other threads run meanwhile."""
        self._cuda.call("cuStreamSynchronize", self.handle)

    def captured(self, enqueue: Callable[[], None]) -> "Graph":
        """Return what `enqueue` puts on this stream, as a graph. Raises `NotCapturable`."""
        try:
            return self._captured(enqueue)
        except CudaFailed as error:
            raise NotCapturable(str(error)) from error

    def _captured(self, enqueue: Callable[[], None]) -> "Graph":
        self._cuda.begin_capture(self.handle)
        try:
            enqueue()
        except BaseException:
            self._abandon()
            raise
        graph = self._cuda.call("cuStreamEndCapture", self.handle)
        try:
            return Graph(self._cuda, self.handle, self._cuda.call("cuGraphInstantiate", graph, 0))
        finally:
            self._cuda.call("cuGraphDestroy", graph)

    def _abandon(self) -> None:
        """A capture that went wrong has to be ended all the same; most often there is no graph then."""
        try:
            graph = self._cuda.call("cuStreamEndCapture", self.handle)
        except CudaFailed:
            return
        self._cuda.call("cuGraphDestroy", graph)

    def close(self) -> None:
        self._cuda.call("cuStreamDestroy", self.handle)


class Buffer:
    """Memory on the GPU."""

    def __init__(self, cuda: Cuda, handle: Any, size: int) -> None:
        """Only for `Cuda.allocate`."""
        self._cuda, self.handle, self.size = cuda, handle, size

    def __int__(self) -> int:
        return int(self.handle)

    def fill(self, stream: Stream, byte: int = 0) -> None:
        """Enqueue setting every byte."""
        self._cuda.call("cuMemsetD8Async", self.handle, byte, self.size, stream.handle)

    def copy_from(self, other: "Buffer", stream: Stream) -> None:
        """Enqueue copying all of another one that is not larger."""
        self._cuda.call("cuMemcpyDtoDAsync", self.handle, other.handle, other.size, stream.handle)

    def close(self) -> None:
        self._cuda.call("cuMemFree", self.handle)


class Graph:
    """Ready to be launched on the stream that it was captured on."""

    def __init__(self, cuda: Cuda, stream: Any, handle: Any) -> None:
        """Only for `Stream.captured`."""
        self._cuda, self._stream, self._handle = cuda, stream, handle

    def launch(self) -> None:
        self._cuda.call("cuGraphLaunch", self._handle, self._stream)

    def close(self) -> None:
        self._cuda.call("cuGraphExecDestroy", self._handle)

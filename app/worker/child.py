"""`python -P -m app.worker.child FD PARENT`: do what the request line on stdin says, speak on FD, end.

stdin stays open: it carries `{"command":"stop"}`, and its end means that the parent is gone.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app.worker.lines import TooLong, message_line, read_request
from app.worker.messages import (
    BuildRequest,
    Built,
    Examined,
    Failed,
    Inspected,
    InspectRequest,
    Loaded,
    LoadRequest,
    Message,
    NoGpu,
    PreflightRequest,
    Probed,
    ProbeRequest,
    RefitRequest,
    Refused,
    Stopped,
    WatchRequest,
)
from app.worker.scrub import Scrubber, scrubber_here

Outcome = Built | Loaded | Failed | Stopped | Inspected | Examined | Refused | Probed | NoGpu

INSPECT_MEMORY = 8 << 30  # bytes of address space: a 2 GiB model is read twice
LONGEST_REQUEST = 16 << 20  # bytes
OOM_SCORE = 900  # the kernel takes the child long before the server
_PR_SET_PDEATHSIG = 1


def main(speaks: int, parent: int) -> None:
    """Never returns normally: native libraries are not torn down, only left."""
    _settle_in(parent)
    os.set_inheritable(speaks, False)
    stdin = CommandLines(0)
    request = stdin.read()
    if request is None:
        os._exit(2)
    _shut_in(request)
    stop = threading.Event()
    threading.Thread(target=_obey, args=(stdin, stop), name="commands", daemon=True).start()
    send = _sender(speaks)
    scrub = scrubber_here()
    _send_outcome(send, _outcome(request, send, stop, scrub), scrub)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


class CommandLines:
    """Lines of a descriptor, read without Python's buffered files: their locks break the exit of a waiting thread."""

    def __init__(self, fd: int) -> None:
        self._fd, self._buffer = fd, bytearray()

    def read(self) -> bytes | None:
        """Return the next line, or None at the end or when it is longer than `LONGEST_REQUEST`."""
        while (end := self._buffer.find(b"\n")) < 0:
            chunk = os.read(self._fd, 1 << 16)
            if not chunk or len(self._buffer) > LONGEST_REQUEST:
                return None
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


def _settle_in(parent: int) -> None:
    """Die with the parent, first in line for the kernel's memory killer, without a core file, deaf to Ctrl-C."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(2)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))


def _shut_in(line: bytes) -> None:
    """Before any thread and any library: who reads a stranger's model sees its folder and nothing else of ours."""
    from app.worker.sandbox import confine

    with suppress(ValueError, AttributeError):  # the outcome tells
        match json.loads(line):
            case {"kind": "inspect"}:
                confine(Path.cwd())
            case {
                "kind": "build" | "preflight",
                "builder": "tensorrt_rtx",
            }:  # builds without a device; CUDA needs more than we know
                confine(Path.cwd(), builder=True)


def _obey(stdin: CommandLines, stop: threading.Event) -> None:
    while (line := stdin.read()) is not None:
        with suppress(ValueError, AttributeError):
            if json.loads(line).get("command") == "stop":
                stop.set()
    _die()


def _die() -> None:
    """End the whole group at once; when started by hand the group is the shell's, so only ourselves."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _sender(fd: int) -> Callable[[Message], None]:
    def send(message: Message) -> None:
        left = message_line(message)
        while left:
            left = left[os.write(fd, left) :]

    return send


def _send_outcome(send: Callable[[Message], None], outcome: Outcome, scrub: Scrubber) -> None:
    try:
        send(outcome)
    except TooLong:
        text = "The model has so many inputs, outputs or kinds of operators that their list is longer than 1 MiB."
        send(Refused("model_unreadable", text) if isinstance(outcome, Inspected) else Failed("internal_error", text))


def _outcome(line: bytes, send: Callable[[Message], None], stop: threading.Event, scrub: Scrubber) -> Outcome:
    """What we did not expect is an outcome too: the trace goes to the log, one line of it to the client."""
    kind = "request"
    try:
        request = read_request(line)
        kind = type(request).__name__
        match request:
            case BuildRequest():
                return _build(request, send, stop, scrub)
            case RefitRequest():
                return _refit(request, send, stop, scrub)
            case InspectRequest():
                return _inspect(request, stop, scrub)
            case PreflightRequest():
                return _preflight(request, stop, scrub)
            case ProbeRequest():
                return _probe(request)
            case LoadRequest():
                return _load(request, stop, scrub)
            case WatchRequest():
                return _watch(request, send, stop)
    except Exception as error:
        sys.stderr.write(scrub(traceback.format_exc(), 1 << 14))
        text = scrub(f"{type(error).__name__}: {error}", 500)
        if kind == "InspectRequest":
            return Refused("model_unreadable", f"Reading the model failed with {text}")
        return Failed(
            "builder_unusable" if kind == "ProbeRequest" else "internal_error", f"The child failed with {text}"
        )


def _build(
    request: BuildRequest, send: Callable[[Message], None], stop: threading.Event, scrub: Scrubber
) -> Built | Failed | Stopped:
    from app.worker.monitor import PhaseLog
    from app.worker.tensorrt import build

    with PhaseLog(send, scrub) as phases:
        outcome = build(request, phases, stop, scrub)
    if phases.error:
        raise phases.error
    return outcome


def _refit(
    request: RefitRequest, send: Callable[[Message], None], stop: threading.Event, scrub: Scrubber
) -> Built | Failed | Stopped:
    from app.worker.monitor import PhaseLog
    from app.worker.refit import refit

    with PhaseLog(send, scrub) as phases:
        return refit(request, phases, stop, scrub)


def _inspect(request: InspectRequest, stop: threading.Event, scrub: Scrubber) -> Inspected | Refused | Stopped:
    resource.setrlimit(resource.RLIMIT_AS, (INSPECT_MEMORY, INSPECT_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_s, request.cpu_s))
    from app.intake.inspect import Unfit, inspect

    if stop.is_set():
        return Stopped("between_stages")
    try:
        return Inspected(inspect(request.model, request.max_opset, request.files))
    except Unfit as unfit:
        return Refused(unfit.code, scrub(unfit.message, 1000), unfit.files)


def _preflight(request: PreflightRequest, stop: threading.Event, scrub: Scrubber) -> Examined:
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_s, request.cpu_s))
    from app.worker.consult import examine

    return examine(request, stop, scrub)


def _probe(request: ProbeRequest) -> Probed:
    from app.worker.tensorrt import probe

    return probe(request.builder)


def _load(request: LoadRequest, stop: threading.Event, scrub: Scrubber) -> Loaded | Failed | Stopped:
    from app.worker.load import load

    return load(request, stop, scrub)


def _watch(request: WatchRequest, send: Callable[[Message], None], stop: threading.Event) -> NoGpu | Stopped:
    from app.worker.nvml import watch

    return watch(request, send, stop)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

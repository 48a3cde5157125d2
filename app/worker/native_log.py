"""The builder's own words: all to stderr, warnings and errors also as messages, the first error of a stage kept."""

import os
import re
import select
from collections.abc import Callable
from typing import Any

from app.worker.messages import Log, Message

MOST_MESSAGES = 200  # per attempt
LONGEST = 2000  # characters of one text

# A machine without a GPU says this after almost every other error; it explains nothing.
_NOISE = re.compile(r"cudaError(?:\(\))? ?(?:35|100)\b|CUDA driver version is insufficient|no CUDA-capable device")
_FIGURES = re.compile(r"(Total Weights Memory|Total Activation Memory|Max Scratch Memory): (\d+) bytes")


def without_noise(text: str) -> str:
    """Return the lines that say something; a text of several lines may end in noise."""
    return "\n".join(line for line in text.splitlines() if not _NOISE.search(line))


class NativeLog:
    """Collects what the builder logs. Called from native threads: never raises, never waits for a reader."""

    def __init__(self, say: Callable[[Message], None], scrub: Callable[[str], str]) -> None:
        self._say, self._scrub = say, scrub
        self.complaints = 0  # warnings and errors so far, without the noise
        self._said = 0
        self._writable = select.poll()
        self._writable.register(2, select.POLLOUT)
        self._figures: dict[str, int] = {}
        self._error: str | None = None
        self._noise: str | None = None

    @property
    def first_error(self) -> str | None:
        """Of this stage; noise only where nothing else was said, because then the missing GPU may be the reason."""
        return self._error or self._noise

    def enter_stage(self) -> None:
        self._error = self._noise = None

    def take(self, severity: str, text: str) -> None:
        """`severity` is TensorRT's own name: INTERNAL_ERROR, ERROR, WARNING, INFO."""
        try:
            self._take(severity, self._scrub(text))
        except Exception:
            self._error = self._error or "the builder's log could not be read"

    def figure(self, name: str) -> int | None:
        """Bytes logged as `name`: the largest, since a build with several profiles logs one line for each."""
        return self._figures.get(name)

    def _take(self, severity: str, text: str) -> None:
        self._print(f"[{severity}] {text}\n")
        if severity == "INFO":
            for name, count in _FIGURES.findall(text):
                self._figures[name] = max(int(count), self._figures.get(name, 0))
        elif words := without_noise(text):
            self.complaints += 1
            if severity != "WARNING":
                self._error = self._error or words
            self._tell(severity, words)
        elif severity != "WARNING":
            self._noise = self._noise or text

    def _tell(self, severity: str, text: str) -> None:
        if self._said < MOST_MESSAGES:
            self._said += 1
            self._say(Log("warning" if severity == "WARNING" else "error", text))

    def _print(self, line: str) -> None:
        """A pipe that polls as writable takes PIPE_BUF (4096) bytes without waiting; what finds it full is dropped."""
        if self._writable.poll(0):
            os.write(2, line.encode(errors="replace")[:4096])


def logger_for(trt: Any, log: NativeLog) -> Any:
    """Return the `ILogger` of this flavour of TensorRT; VERBOSE is left out."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            if severity != trt.ILogger.Severity.VERBOSE:
                log.take(severity.name, msg)

    return Logger()

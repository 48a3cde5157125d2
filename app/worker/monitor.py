"""Progress callbacks → facts about phases. Callbacks only append; a thread of its own does the writing."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any

from app.worker.messages import Message, PhaseFinished, PhaseStarted, PhaseStep

SEND_INTERVAL = 0.1  # seconds between rounds: 10 lines a second at most per live phase
MOST_WAITING = 100_000  # calls kept while the reader is slow; from then on steps are dropped, starts and finishes never

_Live = tuple[int, float]  # id, monotonic start


class PhaseLog:
    """Turn the builder's callbacks into messages, in order, and hand them to `send` from one thread.

    Callbacks come from several native threads. Phase names are unique only while they live, are used again, and may
    report a step after their finish; so every start gets an id of its own and strays are dropped.
    """

    def __init__(self, send: Callable[[Message], None], scrub: Callable[[str], str] = str) -> None:
        self._send, self._scrub = send, scrub
        self._calls: deque[tuple[Any, ...]] = deque()  # append and popleft are atomic
        self._live: dict[str, _Live] = {}  # name → the phase that bears it now
        self._ids = itertools.count(1)
        self._steps: dict[int, int] = {}  # id → latest step not sent yet
        self._done = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._epoch = time.time() - monotonic()  # the wall clock may jump during a build; spans must not
        self.error: BaseException | None = None  # a broken pipe here is our failure, never a cancel

    def start(self, name: str, parent: str | None, total: int) -> None:
        self._calls.append(("start", monotonic(), name, parent, total))

    def step(self, name: str, step: int) -> None:
        if len(self._calls) < MOST_WAITING:
            self._calls.append(("step", name, step))

    def finish(self, name: str) -> None:
        self._calls.append(("finish", monotonic(), name))

    def say(self, message: Message) -> None:
        """Send a message of another kind at once, in its place among the phases: the next native call may crash."""
        self._calls.append(("say", message))
        self._wake.set()

    def __enter__(self) -> "PhaseLog":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until all is said."""
        self._done = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._done:
                woken = self._wake.wait(SEND_INTERVAL)
                self._wake.clear()
                self._round(steps_too=not woken)
            self._round(steps_too=True)
        except BaseException as error:
            self.error = error

    def _round(self, steps_too: bool) -> None:
        """Send what waits. Steps collapse to the latest per phase and keep to the interval; nothing else does."""
        for _ in range(len(self._calls)):  # what comes meanwhile waits for the next round, or steps would never be sent
            match self._calls.popleft():
                case ("start", at, name, parent, total):
                    self._started(at, name, parent, total)
                case ("step", name, step) if name in self._live:
                    self._steps[self._live[name][0]] = step
                case ("finish", at, name) if name in self._live:
                    phase, since = self._live.pop(name)
                    self._steps.pop(phase, None)
                    self._send(PhaseFinished(id=phase, at=self._epoch + at, elapsed_s=at - since))
                case ("say", message):
                    self._send(message)
        if steps_too:
            for phase, step in self._steps.items():
                self._send(PhaseStep(id=phase, step=step))
            self._steps.clear()

    def _started(self, at: float, name: str, parent: str | None, total: int) -> None:
        above = self._live.get(parent) if parent is not None else None
        phase = next(self._ids)
        self._live[name] = (phase, at)
        self._send(
            PhaseStarted(
                id=phase,
                parent=above[0] if above else None,
                name=self._scrub(name),
                steps=total if total > 0 else None,
                at=self._epoch + at,
            )
        )


def monitor_for(trt: Any, phases: PhaseLog, stop: threading.Event, refused: threading.Event) -> Any:
    """Return the `IProgressMonitor` of this flavour. `refused` is set once it has told the builder to stop."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            phases.step(phase_name, step)
            if stop.is_set():
                refused.set()
                return False
            return True  # an exception here would be taken for a cancel: nothing above can raise

        def phase_finish(self, phase_name: str) -> None:
            phases.finish(phase_name)

    return Monitor()

"""What watching costs the builder: callbacks of a real build, played again to the monitor and to one that does nothing.

`python -m benchmarks.monitor MODEL ROUNDS` does it in a process of its own and prints JSON.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from app.worker.child import _sender
from app.worker.messages import BuildRequest, Built
from app.worker.monitor import PhaseLog, monitor_for
from app.worker.scrub import scrubber_here
from app.worker.tensorrt import build
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope, heard, start
from benchmarks.service import light_model

GOAL_PERCENT = 0.2

Call = tuple[Any, ...]  # ("start" | "step" | "finish", arguments of the callback …)


def measure(scope: Scope) -> list[Line]:
    return [_line(name, scope) for name in ("resnet50", "densenet121")]


def _line(name: str, scope: Scope) -> Line:
    found = heard(start("monitor", str(light_model(name)), str(scope.rounds(9, 3))))
    share = [100 * found["callbacks"] * us / 1e6 / found["seconds"] for us in found["ours_us"]]
    noop = [100 * found["callbacks"] * us / 1e6 / found["seconds"] for us in found["noop_us"]]
    per_call = f"{Spread.of(found['ours_us'])} µs each, doing nothing {Spread.of(found['noop_us'])} µs"
    return Line(
        what=f"monitor's share of a build of light_{name}",
        unit="%",
        ours=Spread.of(share),
        beside="a monitor that does nothing",
        theirs=Spread.of(noop),
        goal=f"at most {GOAL_PERCENT} %",
        met=Spread.of(share).median <= GOAL_PERCENT,
        how=f"{found['callbacks']} callbacks in {found['seconds']:.3g} s; {per_call}; recorded in a real build and played "
        "again without pauses, with the sending thread at work, in rounds that alternate. The builder's own way into "
        "Python is not in it.",
    )


class Recording(PhaseLog):
    """Keeps every callback as it came."""

    def __init__(self, send: Any) -> None:
        super().__init__(send)
        self.calls: list[Call] = []

    def start(self, name: str, parent: str | None, total: int) -> None:
        self.calls.append(("start", name, parent, total))
        super().start(name, parent, total)

    def step(self, name: str, step: int) -> None:
        self.calls.append(("step", name, step))
        super().step(name, step)

    def finish(self, name: str) -> None:
        self.calls.append(("finish", name))
        super().finish(name)


def main(model: Path, rounds: int) -> dict[str, Any]:
    null = os.open(os.devnull, os.O_WRONLY)
    phases = Recording(_sender(null))
    with TemporaryDirectory(prefix="trtforge-monitor-") as folder, phases, _native_silence(null):
        request = BuildRequest("tensorrt_rtx", str(model), f"{folder}/plan", [], 3, 8 << 30, ["8.0", "8.6", "8.9"])
        began = perf_counter()
        outcome = build(request, phases, threading.Event(), scrubber_here())
        seconds = perf_counter() - began
    if not isinstance(outcome, Built):
        raise SystemExit(f"{model} was not built: {outcome}")
    ours, noop = [], []
    for _ in range(rounds):
        with PhaseLog(_sender(null), scrubber_here()) as fresh:
            ours.append(_played(_monitor(fresh), phases.calls))
        noop.append(_played(_Nothing(), phases.calls))
    return {"callbacks": len(phases.calls), "seconds": seconds, "ours_us": ours, "noop_us": noop}


@contextmanager
def _native_silence(null: int) -> Iterator[None]:
    """Drop what goes to the descriptor of stderr: the builder is talkative, and errors of ours come later."""
    kept = os.dup(2)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _monitor(phases: PhaseLog) -> Any:
    import tensorrt_rtx

    return monitor_for(tensorrt_rtx, phases, threading.Event(), threading.Event())


class _Nothing:
    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None: ...

    def step_complete(self, phase_name: str, step: int) -> bool:
        return True

    def phase_finish(self, phase_name: str) -> None: ...


def _played(monitor: Any, calls: list[Call]) -> float:
    """Return microseconds per callback."""
    methods = {"start": monitor.phase_start, "step": monitor.step_complete, "finish": monitor.phase_finish}
    bound = [(methods[kind], arguments) for kind, *arguments in calls]
    began = perf_counter()
    for method, arguments in bound:
        method(*arguments)
    return (perf_counter() - began) * 1e6 / len(calls)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))

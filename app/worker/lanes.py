"""In a child: run the same on several streams at once and take the time. Knows nothing of engines."""

import threading
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from math import ceil
from time import perf_counter
from typing import Any

from app.worker.cuda import Cuda, Stream

WARM_UP = 3  # runs before the first that counts, and before a capture: the first allocate and load what they need


@dataclass(frozen=True)
class Lane:
    """A stream, and what puts one piece of work on it. `enqueue` raises `CudaFailed` when it cannot."""

    stream: Stream
    enqueue: Callable[[], None]


@dataclass(frozen=True)
class _Times:
    began: float
    ended: float
    each: "array[float]"  # seconds


def steps(most: int) -> list[int]:
    """Return 1, 2, 4, … up to `most`, which is among them; none for 0."""
    doubled = [1 << n for n in range(most.bit_length()) if 1 << n < most]
    return [*doubled, most] if most else []


def measure(cuda: Cuda, lanes: Sequence[Lane], graphs: bool, seconds: float, stop: threading.Event) -> dict[str, Any]:
    """Run all lanes at once for so many seconds, a thread each; return the fields of `Measurement`.

    Each enqueues one piece and waits for it, again and again. `graphs`: captured once, then launched. Raises
    `CudaFailed`, and `NotCapturable` when it cannot be a graph.
    """
    with ExitStack() as held:
        runs = [_ready(lane, graphs, held) for lane in lanes]
        gate = threading.Barrier(len(lanes))
        with ThreadPoolExecutor(len(lanes)) as pool:
            running = [
                pool.submit(_run, cuda, lane.stream, run, seconds, stop, gate)
                for lane, run in zip(lanes, runs, strict=True)
            ]
            times = [one.result() for one in running]
    return {"contexts": len(lanes), "cuda_graphs": graphs, **_figures(times)}


def _ready(lane: Lane, graphs: bool, held: ExitStack) -> Callable[[], None]:
    for _ in range(WARM_UP):
        lane.enqueue()
        lane.stream.synchronize()
    if not graphs:
        return lane.enqueue
    graph = held.enter_context(closing(lane.stream.captured(lane.enqueue)))
    graph.launch()
    lane.stream.synchronize()
    return graph.launch


def _run(
    cuda: Cuda, stream: Stream, run: Callable[[], None], seconds: float, stop: threading.Event, gate: threading.Barrier
) -> _Times:
    each: array[float] = array("d")
    try:
        cuda.use()
    finally:
        gate.wait()  # also without a context: the others wait for all
    began = now = perf_counter()
    while now - began < seconds and not stop.is_set():
        run()
        stream.synchronize()
        before, now = now, perf_counter()
        each.append(now - before)
    return _Times(began, now, each)


def _figures(times: Sequence[_Times]) -> dict[str, Any]:
    took = max(one.ended for one in times) - min(one.began for one in times)
    each = sorted(seconds for one in times for seconds in one.each)
    rate = len(each) / took if took > 0 else 0.0
    return {
        "inferences": len(each),
        "seconds": round(took, 3),
        "throughput_per_s": round(rate, 2),
        "latency_ms": {"p50": _percentile(each, 50), "p99": _percentile(each, 99)},
    }


def _percentile(ascending: Sequence[float], percent: int) -> float:
    """The nearest rank, in milliseconds; 0 where nothing ran, because a stop came first."""
    rank = max(1, ceil(len(ascending) * percent / 100))
    return round(1000 * ascending[rank - 1], 4) if ascending else 0.0

"""The loop that measures engines, on a real GPU, with memory that is set and copied in the place of inferences.

`PYTHONPATH=.:client python -m benchmarks.lanes SECONDS` prints it as JSON. It needs cuda-bindings, a GPU and its driver. It shows
that streams, graphs and memory are used rightly; of engines it says nothing.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from app.worker.cuda import Cuda, CudaFailed, CudaMissing
from app.worker.lanes import Lane, measure, steps

MOST = 4  # lanes at once
SIZE = 8 << 20  # bytes that each piece of work sets and copies
TIMES = 8  # in one piece


def main(seconds: float) -> int:
    try:
        cuda = Cuda()
    except (CudaFailed, CudaMissing) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    with closing(cuda):
        print(json.dumps({"points": measured(cuda, seconds), "bytes": SIZE, "times": TIMES}))
    return 0


def measured(cuda: Cuda, seconds: float) -> list[dict[str, Any]]:
    """Return the points for 1, 2 and 4 lanes, graphs off and on."""
    points = []
    with ExitStack() as held:
        lanes: list[Lane] = []
        for count in steps(MOST):
            while len(lanes) < count:
                lanes.append(held.enter_context(_lane(cuda)))
            points += [measure(cuda, lanes, graphs, seconds, threading.Event()) for graphs in (False, True)]
    return points


@contextmanager
def _lane(cuda: Cuda) -> Iterator[Lane]:
    with ExitStack() as held:
        stream = held.enter_context(closing(cuda.stream()))
        here, there = (held.enter_context(closing(cuda.allocate(SIZE))) for _ in range(2))

        def enqueue() -> None:
            for byte in range(TIMES):
                here.fill(stream, byte)
                there.copy_from(here, stream)

        yield Lane(stream, enqueue)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))

"""Do something again and again in children of ours, killed before its first step, before its second, … until it ends.

A step is a call into the kernel that Python audits. One line per run is printed: `killed` or `ended`.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

MOST = 400  # runs: more than anything here has steps


def die_before(step: int, counts: Callable[[str, Any], bool]) -> None:
    """Kill this process before the step of that number, of those that count. For the rest of its life."""
    seen = 0

    def count(event: str, arguments: Any) -> None:
        nonlocal seen
        if counts(event, arguments):
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    sys.addaudithook(count)


def until_it_ends(once: Callable[[int], None]) -> None:
    """Run `once(step)` in a child for every step. It leaves without closing: what it staged is for the sweep."""
    for step in range(MOST):
        if (pid := os.fork()) == 0:
            once(step)
            os._exit(0)
        _, result = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(result) == 0:
            print("ended", flush=True)
            return
        assert os.waitstatus_to_exitcode(result) == -signal.SIGKILL, result
        print("killed", flush=True)
    raise AssertionError(f"it has not ended after {MOST} runs")

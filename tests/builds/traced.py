"""Hold a dying process: a tracer that asked for it stops its tracee on the way out, and no second SIGKILL helps.

It is the one way to have a process that SIGKILL does not end, as a driver in trouble makes them, without such a driver.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SEIZE, _DETACH = 0x4206, 17
_TRACE_EXIT = 0x40  # option: stop before the end

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Held:
    """A descendant of this process that will not end before `let_go`. All in one thread: that is the tracer."""

    def __init__(self, pid: int) -> None:
        self._pid, self._held = pid, True
        _ptrace(_SEIZE, pid, _TRACE_EXIT)

    def let_go(self) -> None:
        """It must be dying by now."""
        if self._held:
            self._held = False
            _ptrace(_DETACH, self._pid, 0)


@contextmanager
def held(pid: int) -> Iterator[Held]:
    one = Held(pid)
    try:
        yield one
    finally:
        one.let_go()


def _ptrace(what: int, pid: int, value: Any) -> None:
    if _libc.ptrace(what, pid, None, value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

"""Ctrl-C and SIGTERM: the first asks, the second leaves at once."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from trtforge.cli.session import INTERRUPTED


class Stop:
    """Raises one `KeyboardInterrupt` where the command is; another signal ends the process."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._asked = self._held = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Put the interrupt off to the end of the block: what happens in it must be known before anyone leaves."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._asked:
            raise KeyboardInterrupt

    def _on(self, _number: int, _frame: FrameType | None) -> None:
        if self._asked:
            self._console.show_cursor()
            os._exit(INTERRUPTED)  # nothing may hold it up: not a lock, not a request under way
        self._asked = True
        if not self._held:
            raise KeyboardInterrupt

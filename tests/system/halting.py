"""Run the real server so that it signals itself at a named point of publish: `python -m tests.system.halting FILE serve …`.

FILE is read whenever a point is passed: `<point> <signal>` arms one, once. Nothing of the service knows about it: a
profile hook in the threads that publish sees functions begin and return.
"""

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from tests.conftest import Server

# point → (what happens, to which function, called from within which)
POINTS = {
    "entering": ("call", "Conclusion.enter_publish", ""),
    "entered": ("return", "Conclusion.enter_publish", ""),  # 0
    "hashing": ("call", "_hash_and_sync", "publish"),
    "renaming": ("call", "StagedPlan.rename", "publish"),
    "renamed": ("call", "sync_folder", "StagedPlan.rename"),
    "plan_kept": ("return", "LocalStore.put_plan", "publish"),  # 1
    "signed": ("return", "LocalStore.put_signature", "publish"),  # only with a signing key
    "manifest_staged": ("return", "LocalStore._written", "LocalStore.put_manifest"),
    "manifest_linked": ("return", "Path.hardlink_to", "LocalStore.put_manifest"),
    "manifest_kept": ("return", "LocalStore.put_manifest", "publish"),  # 2
    "concluding": ("return", "succeed", "Conclusion.succeed"),  # written, not yet committed
    "concluded": ("return", "Conclusion.succeed", ""),  # 3
}
NAMES = frozenset(function.rsplit(".", 1)[-1] for _, function, _ in POINTS.values())


class Halting(Server):
    """A server that signals itself where it is told to."""

    def __init__(self, data: Path, **settings: str) -> None:
        super().__init__(data, **settings)
        self.armed = data.parent / f"{data.name}-armed"
        self.program = ("-m", "tests.system.halting", str(self.armed))

    def arm(self, point: str, number: str) -> None:
        draft = self.armed.with_suffix(".new")
        draft.write_text(f"{point} {number}")
        draft.replace(self.armed)


class Hook:
    def __init__(self, armed: Path) -> None:
        self._armed = armed

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code.co_name not in NAMES or not self._armed.exists():
            return
        point, number = self._armed.read_text().split()
        wanted, function, within = POINTS[point]
        if event == wanted and frame.f_code.co_qualname == function and (not within or _within(frame, within)):
            self._armed.unlink()
            # To this very thread: one for the process may reach another first, and this one goes on for a moment.
            signal.pthread_kill(threading.get_ident(), signal.Signals[number])


def _within(frame: FrameType, function: str) -> bool:
    caller = frame.f_back
    while caller and caller.f_code.co_qualname != function:
        caller = caller.f_back
    return caller is not None


def main() -> None:
    threading.setprofile(Hook(Path(sys.argv[1])))  # of threads that are yet to start: those that work, not the loop's
    sys.argv[1:] = sys.argv[2:]
    from trtforge.cli.main import run

    run()


if __name__ == "__main__":
    main()

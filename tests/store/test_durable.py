"""No test can cut the power, so the order of calls is watched: bytes to the disk, their name, the name to the disk."""

import sys
import threading
from collections.abc import Callable

import pytest

from tests.store.crash import publish, put_model

WATCHED = {"fsync", "rename", "link", "unlink"}


def calls_of(run: Callable[[], None]) -> list[str]:
    """Return the watched calls of `run` and of the threads it starts, in order."""
    calls: list[str] = []

    def watch(_: object, event: str, function: object) -> None:
        name = getattr(function, "__name__", "")
        if event == "c_call" and name in WATCHED:
            calls.append(name)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


PUT = ["fsync", "rename", "fsync", "fsync"]  # the file; its folder and that folder's own entry
LINK = ["fsync", "link", "fsync", "fsync", "unlink"]


@pytest.mark.parametrize(("prepare", "order"), [(put_model, PUT), (publish, [*PUT, *LINK])])
def test_bytes_are_on_the_disk_before_their_name(store, prepare, order):
    assert calls_of(prepare(store)) == order

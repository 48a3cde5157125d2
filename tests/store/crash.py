"""Run one move of the store again and again, killed before its first step, before its second, … until it ends.

A step is a call into the kernel that Python audits: open, mkdir, chmod, rename, link, remove. Arguments: folder, move.
Prints one line per run: `killed` or `ended`. The store of run N is `<folder>/<N>`.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from app.store.base import Store
from app.store.local import LocalStore
from tests.store.conftest import manifest_of

STEPS = {"open", "os.mkdir", "os.chmod", "os.rename", "os.link", "os.remove"}
CONTENT = b"model or plan" * 1000


def put_model(store: Store) -> Callable[[], None]:
    upload = store.begin_model()
    upload.write(CONTENT)
    return lambda: store.put_model(upload, upload.digest)


def publish(store: Store) -> Callable[[], None]:
    path = store.scratch("b") / "plan"
    path.write_bytes(CONTENT)

    def run() -> None:
        with store.take_plan(path) as staged:
            store.put_plan(staged)
        store.put_manifest(manifest_of())

    return run


def once(root: Path, prepare: Callable[[Store], Callable[[], None]], die_before: int) -> None:
    store = LocalStore(root)
    store.open_staging("dead")
    run = prepare(store)
    seen = 0

    def count(event: str, _: object) -> None:
        nonlocal seen
        if event in STEPS:
            if seen == die_before:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    sys.addaudithook(count)
    run()
    os._exit(0)  # without closing: its staging is for the sweep


def main(folder: Path, move: str) -> None:
    for step in range(100):
        if (pid := os.fork()) == 0:
            once(folder / str(step), globals()[move], step)
        _, result = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(result) == 0:
            print("ended", flush=True)
            return
        assert os.waitstatus_to_exitcode(result) == -signal.SIGKILL, result
        print("killed", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

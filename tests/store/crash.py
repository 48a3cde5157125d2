"""Run one move of the store, killed before every step. Arguments: folder, move. The store of run N is `<folder>/<N>`."""

import sys
from collections.abc import Callable
from pathlib import Path

from app.store.base import Store
from app.store.local import LocalStore
from tests.killing import die_before, until_it_ends
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


def main(folder: Path, move: str) -> None:
    prepare: Callable[[Store], Callable[[], None]] = globals()[move]

    def once(step: int) -> None:
        store = LocalStore(folder / str(step))
        store.open_staging("dead")
        run = prepare(store)
        die_before(step, lambda event, _: event in STEPS)
        run()

    until_it_ends(once)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""Collect again and again on copies of one data folder, killed before the first step, before the second, … until it ends.

A step is a call into the kernel that changes a folder in which things are kept, or set aside. Arguments: the folder that is copied, the folder of the copies.
Prints one line per run: `killed` or `ended`. The copy of run N is `<folder>/<N>`.
"""

import os
import shutil
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.builds.gc import collect
from app.builds.parts import Parts
from app.db.session import Database
from app.domain.ids import new_id
from app.settings import Settings
from app.store.local import LocalStore

STEPS = {"os.rename", "os.link", "os.remove", "os.rmdir"}
KEPT = ("/models/", "/inspections/", "/plans/", "/manifests/", "/aside")


def later() -> datetime:
    return datetime.now(UTC) + timedelta(days=400)


def opened(data: Path) -> Parts:
    """Return the parts of a service that lets go what is older than a day, 400 days from now."""
    day = 86400.0
    settings = Settings(
        data_dir=data, lock_dir=data / "locks", engine_max_age_s=day, model_max_age_s=day, build_max_age_s=900 * day
    )
    parts = Parts(settings, Database(settings.url), LocalStore(data / "store"), now=later)
    parts.store.open_staging(new_id("wrk"))
    return parts


def once(data: Path, die_before: int) -> None:
    parts = opened(data)
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in STEPS and any(kind in str(arguments) for kind in KEPT):
            if seen == die_before:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    sys.addaudithook(count)
    collect(parts, dry_run=False)
    os._exit(0)  # without closing: what is staged is for the sweep


def main(source: Path, copies: Path) -> None:
    for step in range(400):
        data = copies / str(step)
        shutil.copytree(source, data)
        if (pid := os.fork()) == 0:
            once(data, step)
        _, result = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(result) == 0:
            print("ended", flush=True)
            return
        assert os.waitstatus_to_exitcode(result) == -signal.SIGKILL, result
        print("killed", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Collect on copies of one data folder, killed before every step that changes a folder of things kept, or set aside.

Arguments: the folder that is copied, the folder of the copies. The copy of run N is `<folder>/<N>`.
"""

import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.builds.gc import collect
from app.builds.parts import Parts
from app.db.session import Database
from app.domain.ids import new_id
from app.settings import Settings
from app.store.local import LocalStore
from tests.killing import die_before, until_it_ends

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


def counts(event: str, arguments: tuple[object, ...]) -> bool:
    return event in STEPS and any(kind in str(arguments) for kind in KEPT)


def main(source: Path, copies: Path) -> None:
    def once(step: int) -> None:
        shutil.copytree(source, copies / str(step))
        parts = opened(copies / str(step))
        die_before(step, counts)
        collect(parts, dry_run=False)

    until_it_ends(once)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

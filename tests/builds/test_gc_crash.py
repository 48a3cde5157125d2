"""kill -9 at every step of a collection: what is kept stays whole, and the next one takes the rest."""

import subprocess
import sys
from pathlib import Path

from app.builds.gc import collect
from app.builds.verify import verify
from app.db import engines, models, tables
from tests.builds.gc_crash import opened
from tests.builds.stocked import stock_engine, stock_model
from tests.scene import MODEL
from tests.scene import opened as scene_opened
from trtforge.contract.engines import Manifest


def stocked(folder: Path) -> tuple[Path, Manifest, Manifest, str, str]:
    """A data folder with an engine that goes and one that is pinned, a model of nobody; all long ago."""
    data = folder / "data"
    with scene_opened(f"sqlite:///{data / 'trtforge.db'}", folder) as scene:
        parts = scene.parts
        free, used = stock_model(parts, b"of nobody"), stock_model(parts, b"of an engine")
        goes, stays = stock_engine(parts, used, 1, b"goes"), stock_engine(parts, used, 2, b"stays")
        with parts.database.write() as tx:
            engines.pin(tx, stays.engine_key, True)
            tx.execute(tables.models.delete().where(tables.models.c.digest == MODEL))  # the scene has no bytes of it
        parts.database.close()
    return data, goes, stays, free, used


def test_a_collection_that_is_killed_loses_nothing_and_strands_nothing(tmp_path: Path):
    data, goes, stays, free, used = stocked(tmp_path)
    copies = tmp_path / "copies"
    ran = subprocess.run(
        [sys.executable, "-m", "tests.builds.gc_crash", str(data), str(copies)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    runs = [line for line in ran.stdout.splitlines() if line in ("killed", "ended")]  # beside words of the log
    assert runs[-1] == "ended"
    assert len(runs) > 6
    for number in range(len(runs)):
        parts = opened(copies / str(number))
        try:
            found = verify(parts)
            assert {fault.fault for fault in found.faults} <= {"orphan", "unindexed"}, (number, found)
            parts.store.sweep()
            collect(parts, dry_run=False)
            assert verify(parts).faults == (), number
            with parts.database.read() as tx:
                assert not engines.is_there(tx, goes.engine_key), number
                assert engines.is_there(tx, stays.engine_key), number
                assert (models.find(tx, free), models.find(tx, used) is None) == (None, False), number
            assert not parts.store.open_plan(goes.plan.digest).exists(), number
            assert parts.store.verify_plan(stays.plan.digest), number
            assert [one.digest for one in parts.store.stored_models()] == [used], number
        finally:
            parts.store.close()
            parts.database.close()

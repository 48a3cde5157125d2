"""Ready means: the schema is at head, the store can be written, a worker can build, and nobody drains."""

import asyncio
import shutil

from sqlalchemy import text

from app.builds.readiness import Readiness
from tests.scene import Scene


def _looked(scene: Scene, worker: str | None = None) -> Readiness:
    readiness = Readiness(scene.parts, lambda: worker)
    assert not readiness.ready
    assert readiness.checks["started"]
    asyncio.run(readiness.look())
    return readiness


def test_ready_when_everything_works(scene: Scene) -> None:
    readiness = _looked(scene)
    assert readiness.ready
    assert not any(readiness.checks.values())


def test_draining_is_not_ready(small: Scene) -> None:
    readiness = _looked(small)
    readiness.drain()
    assert not readiness.ready
    assert "shutting down" in (readiness.checks["draining"] or "")


def test_a_worker_s_trouble_is_told(small: Scene) -> None:
    readiness = _looked(small, "the builder does not start")
    assert not readiness.ready
    assert readiness.checks["worker"] == "the builder does not start"


def test_a_schema_that_is_not_at_head_is_told(scene: Scene) -> None:
    with scene.parts.database.write() as tx:
        tx.execute(text("update alembic_version set version_num = '0000'"))
    readiness = _looked(scene)
    assert not readiness.ready
    assert "trtforge db upgrade" in (readiness.checks["database"] or "")


def test_a_store_that_is_gone_is_told_and_comes_back(small: Scene) -> None:
    readiness = _looked(small)
    folder = small.parts.settings.data_dir / "store"
    away = folder.with_name("away")
    shutil.move(folder, away)
    asyncio.run(readiness.look())
    assert not readiness.ready
    assert "store" in (readiness.checks["store"] or "")
    assert str(folder) not in (readiness.checks["store"] or "")
    shutil.move(away, folder)
    asyncio.run(readiness.look())
    assert readiness.ready


def test_a_database_that_does_not_answer_is_told_without_its_address(small: Scene) -> None:
    database = small.parts.settings.url.removeprefix("sqlite:///")
    small.parts.database.close()
    with open(database, "wb") as file:  # noqa: PTH123
        file.write(b"no database at all" * 100)
    readiness = _looked(small)
    assert not readiness.ready
    assert "does not answer" in (readiness.checks["database"] or "")
    assert database not in (readiness.checks["database"] or "")

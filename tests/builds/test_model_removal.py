"""Models and files go many at a time: what is asked about all models does not grow with each of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import delete, event

from app.builds.gc import collect
from app.builds.model_removal import remove_files, remove_models
from app.db import models, retention, tables
from app.db.session import Database
from tests.builds.stocked import age_files, digest_of, stock_model
from tests.scene import WORDS, Scene, opened
from trtforge.contract.models import ModelFile

DAY = 86400.0


def at_each_look(scene: Scene, call: Callable[[], None]) -> None:
    """Have `call` called before every statement that reads all models."""

    def hear(*args: object) -> None:
        if "FROM models" in str(args[2]) and "WHERE" not in str(args[2]):
            call()

    event.listen(scene.parts.database.pool, "before_cursor_execute", hear)


def loose(scene: Scene, content: bytes) -> str:
    """Put a file that no model has, as a client that went away leaves it."""
    upload = scene.parts.store.begin_model()
    upload.write(content)
    digest: str = upload.digest
    scene.parts.store.put_model(upload, digest)
    return digest


@pytest.mark.parametrize(
    "put", [loose, lambda scene, content: stock_model(scene.parts, content)], ids=["file", "model"]
)
def test_all_models_are_looked_at_as_often_for_many_as_for_few(
    put: Callable[[Scene, bytes], str], tmp_path: Path
) -> None:
    counts = []
    for number in (3, 40):
        folder = tmp_path / str(number)
        folder.mkdir()
        with opened(f"sqlite:///{folder}/trtforge.db", folder, model_max_age_s=DAY) as scene:
            put_there = {put(scene, f"model {one}".encode()) for one in range(number)}
            age_files(scene.parts)
            scene.clock.turn(2 * DAY)
            seen: list[None] = []
            at_each_look(scene, lambda seen=seen: seen.append(None))  # type: ignore[misc]
            assert put_there <= {item.id for item in collect(scene.parts, dry_run=False).items}
            assert not any(map(scene.parts.store.has_model, put_there))
        counts.append(len(seen))
    assert counts[0] == counts[1] > 0


def test_of_many_files_those_that_a_model_has_stay(scene: Scene) -> None:
    kept, gone = stock_model(scene.parts, b"kept"), {loose(scene, b"one"), loose(scene, b"two")}
    assert remove_files(scene.parts, [kept, digest_of(b"never here"), *gone]) == gone
    assert scene.parts.store.has_model(kept)
    assert not any(map(scene.parts.store.has_model, gone))


def test_a_file_whose_model_comes_while_it_is_out_of_sight_is_put_back(scene: Scene) -> None:
    back, gone = loose(scene, b"comes back"), loose(scene, b"goes")
    other, looks = Database(scene.parts.settings.url), iter(range(9))

    def come() -> None:
        if next(looks) == 1:  # by then both are set aside
            assert not scene.parts.store.has_model(back)
            with other.write() as tx:
                models.add(tx, back, "model.onnx", [ModelFile(name="model.onnx", digest=back, size=1)], WORDS, now)

    now = scene.clock()
    at_each_look(scene, come)
    assert remove_files(scene.parts, [back, gone]) == {gone}
    assert scene.parts.store.has_model(back)
    other.close()


def test_a_model_that_another_process_removed_is_not_said_to_have_gone_here(scene: Scene) -> None:
    digests = [stock_model(scene.parts, b"model %d" % number) for number in range(3)]
    scene.clock.turn(DAY)
    with scene.parts.database.read() as tx:
        found = [one for one in retention.unused_models(tx, scene.clock(), 100) if one.digest in digests]
    with scene.parts.database.write() as tx:
        tx.execute(delete(tables.models).where(tables.models.c.digest == digests[1]))  # another process was faster
    assert remove_models(scene.parts, found) == {digests[0], digests[2]}

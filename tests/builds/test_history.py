"""What an estimate goes by: the same model before others, the same target and level only, and long after the engine."""

from app.builds.history import history_of, learn
from app.builds.submit import submit
from app.db import engines, models
from app.db.builds import BuildRow
from app.domain.estimate import History, Past
from tests.builds.chain import engine
from tests.scene import ANYONE, MODEL, WORDS, Scene
from trtforge.contract.builds import Submit
from trtforge.contract.spec import BuildSpec


def learned(scene: Scene, number: int, total: float) -> None:
    """Let the build of that engine have taken `total` seconds."""
    row = scene.queued(number)
    scene.clock.turn(1)
    with scene.parts.database.write() as tx:
        learn(tx, row, Past(total, {"build": total / 2}), scene.clock())


def history(scene: Scene, number: int = 99) -> History | None:
    row = scene.queued(number)
    with scene.parts.database.read() as tx:
        return history_of(tx, row)


def other_model(scene: Scene, number: int, nodes: int) -> str:
    digest = f"sha256:{number:064x}"
    with scene.parts.database.write() as tx:
        models.add(tx, digest, 4, "m", WORDS.model_copy(update={"node_count": nodes}), scene.clock())
    return digest


def ask(scene: Scene, digest: str, level: int = 3) -> BuildRow:
    answer = submit(scene.parts, Submit(model=digest, spec=BuildSpec(optimization_level=level)), ANYONE, None, b"")
    assert answer.build
    return scene.build(answer.build.id)


def history_of_model(scene: Scene, digest: str, level: int = 3) -> History | None:
    row = ask(scene, digest, level)
    with scene.parts.database.read() as tx:
        return history_of(tx, row)


def test_without_a_finished_build_there_is_none(scene: Scene) -> None:
    assert history(scene) is None


def test_builds_of_the_same_model_are_told_in_words(scene: Scene) -> None:
    learned(scene, 1, 10)
    found = history(scene)
    assert found == History([Past(10, {"build": 5})], "1 build of this model on this target")
    learned(scene, 2, 12)
    found = history(scene)
    assert found
    assert found.basis == "2 builds of this model on this target"
    assert [p.total_s for p in found.pasts] == [12, 10]


def test_only_the_newest_count(scene: Scene) -> None:
    for number in range(12):
        learned(scene, number, 100 + number)
    found = history(scene)
    assert found
    assert [p.total_s for p in found.pasts] == [111 - n for n in range(10)]


def test_another_level_is_another_story(scene: Scene) -> None:
    learned(scene, 1, 10)
    assert history_of_model(scene, MODEL, level=2) is None
    assert history_of_model(scene, MODEL, level=3)


def test_models_of_about_as_many_nodes_stand_in_and_are_stretched(scene: Scene) -> None:
    small, near, far = (other_model(scene, n, nodes) for n, nodes in ((1, 100), (2, 140), (3, 200)))
    assert history_of_model(scene, small) is None
    other, row = ask(scene, small, 4), ask(scene, small)
    with scene.parts.database.write() as tx:
        learn(tx, other, Past(1000, {}), scene.clock())  # at another level: says nothing
        learn(tx, row, Past(10, {"build": 5}), scene.clock())
    found = history_of_model(scene, near)
    assert found == History([Past(14, {"build": 7})], "1 build with similar node counts on this target")
    assert history_of_model(scene, far) is None


def test_what_was_learned_outlives_the_engine(scene: Scene) -> None:
    learned(scene, 1, 10)
    kept = engine(scene, 1)
    with scene.parts.database.write() as tx:
        engines.remove(tx, kept.engine_key)
    assert scene.engine(kept.engine_key) is None
    assert history(scene)


def test_a_build_is_learned_once(scene: Scene) -> None:
    row = scene.queued(1)
    for total in (10, 20):
        with scene.parts.database.write() as tx:
            learn(tx, row, Past(total, {}), scene.clock())
    found = history(scene)
    assert found
    assert [p.total_s for p in found.pasts] == [10]

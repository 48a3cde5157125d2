"""What a refit needs besides its model: the engine that it begins with."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.builds import stopping
from app.builds.gc import collect
from app.builds.submit import answer, check
from tests.builds.stocked import stock_engine
from tests.scene import ANYONE, MODEL, Scene, opened
from trtforge.contract.builds import Submit
from trtforge.contract.engines import Manifest


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(database_url, tmp_path, keep_engines=1) as scene:
        yield scene


def ask(scene: Scene, base: Manifest) -> str:
    """Ask for `base` with other weights; return the build."""
    asked = Submit(model=MODEL)

    def wanted():
        plain = check(scene.parts, asked, ANYONE)
        return replace(plain, spec=plain.spec.model_copy(update={"refitted_from": base.engine_key}))

    made = answer(scene.parts, asked, ANYONE, None, b"", wanted)
    assert made.build
    return made.build.id


def test_an_engine_stays_while_it_is_to_be_refitted(scene: Scene):
    base, other, _ = (stock_engine(scene.parts, MODEL, n, b"plan %d" % n) for n in range(3))
    build = ask(scene, base)
    scene.clock.turn(3600)
    assert [item.id for item in collect(scene.parts, dry_run=False).items] == [other.engine_key]
    stopping.cancel(scene.parts, build, ANYONE, "enough", force=False)
    assert base.engine_key in [item.id for item in collect(scene.parts, dry_run=False).items]

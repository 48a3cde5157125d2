"""Steps of a fallback, and ends of builds, for tests on a scene."""

from typing import Any

from app.builds.conclude import Conclusion
from app.builds.submit import submit
from app.builds.views import request_view
from app.db.builds import BuildRow
from tests.scene import ANYONE, MODEL, Scene, why
from trtforge.contract.builds import Request, Submit
from trtforge.contract.engines import Manifest
from trtforge.contract.spec import BuildSpec


def step(number: int) -> dict[str, Any]:
    """Return a fallback to the engine that `scene.submit(number)` asks for."""
    return {"spec": {"workspace_bytes": (1 << 20) + number}}


def fail(scene: Scene, row: BuildRow, code: str = "builder_error") -> None:
    """End a running build as failed."""
    Conclusion(scene.parts, row).fail(why(code))


def succeed(scene: Scene, row: BuildRow) -> Manifest:
    """End a running build with an engine whose bytes are in the store."""
    manifest = scene.put_engine(row)
    Conclusion(scene.parts, row).succeed(manifest)
    return manifest


def engine(scene: Scene, number: int, **spec: Any) -> Manifest:
    """Build the engine of that number, with what else `spec` says."""
    asked_for = Submit(model=MODEL, spec=BuildSpec(workspace_bytes=(1 << 20) + number, **spec))
    answer = submit(scene.parts, asked_for, ANYONE, None, b"")
    assert answer.build
    return succeed(scene, scene.claim(answer.build.id))


def asked(scene: Scene, request_id: str) -> Request:
    """Return a request as its client sees it."""
    return request_view(scene.request(request_id))

"""Why a miss? The stored engine of the same model that differs least from what was asked, and in what."""

from typing import Any

from app.builds.parts import Parts
from app.db import engines
from app.db.engines import Described
from app.domain.differences import differences
from trtforge.contract.builds import Nearest, Submitted
from trtforge.contract.spec import EffectiveSpec
from trtforge.contract.target import Target

LOOKED_AT = 200  # the newest engines of a model


def with_nearest(parts: Parts, answer: Submitted) -> Submitted:
    """Add the nearest engine to the answer of a submit that made a new build."""
    build = answer.build
    if answer.disposition != "created" or build is None or answer.engine:
        return answer
    return answer.model_copy(update={"nearest": nearest(parts, build.model, build.spec.effective, build.target)})


def nearest(parts: Parts, model: str, spec: EffectiveSpec, target: Target) -> Nearest | None:
    """Return the whole engine of this model with the fewest fields that differ, the newest of those; None: there is none."""
    with parts.database.read() as tx:
        stored = engines.described(tx, model, LOOKED_AT)
    asked = {**spec.model_dump(mode="json"), **target.model_dump(mode="json")}
    found = [(differences(_described(one), asked), one) for one in stored]
    for differs, one in sorted(found, key=lambda pair: len(pair[0])):
        if parts.store.has_plan(one.plan.digest, one.plan.size):
            return Nearest(engine_key=one.engine_key, differs=differs)
    return None


def _described(engine: Described) -> dict[str, Any]:
    """Fields of spec and target side by side: no two bear one name."""
    return {**engine.spec, **engine.target}

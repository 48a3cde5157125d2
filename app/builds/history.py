"""Remember what builds took, and find what compares with a new one."""

from datetime import datetime

from app.db import models, times
from app.db.builds import BuildRow
from app.db.session import Tx
from app.domain.estimate import History, Past


def learn(tx: Tx, build: BuildRow, past: Past, at: datetime) -> None:
    """Remember how long a finished build took, and each of its stages and phases. A refit tells nothing of builds."""
    if _is_refit(build):
        return
    model = models.find(tx, build.model)
    nodes = model.node_count if model else 0
    times.learn(tx, build.id, build.model, build.target_id, _level(build), nodes, past, at)


def history_of(tx: Tx, build: BuildRow) -> History | None:
    """Return what compares best: builds of the same model, else of models with about as many nodes; None: nothing does."""
    if _is_refit(build):
        return None
    if pasts := times.of_model(tx, build.model, build.target_id, _level(build)):
        return History(pasts, f"{_builds(pasts)} of this model on this target")
    model = models.find(tx, build.model)
    if model and (pasts := times.of_size(tx, model.node_count, build.target_id, _level(build))):
        return History(pasts, f"{_builds(pasts)} with similar node counts on this target")
    return None


def _is_refit(build: BuildRow) -> bool:
    return build.spec_effective.get("refitted_from") is not None


def _level(build: BuildRow) -> int:
    level: int = build.spec_effective["optimization_level"]
    return level


def _builds(pasts: list[Past]) -> str:
    return f"{len(pasts)} build" + ("s" if len(pasts) != 1 else "")

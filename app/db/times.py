"""What finished builds took: the history that estimates are made from."""

from datetime import datetime

from sqlalchemy import ColumnElement, select

from app.db.session import Tx, insert_or
from app.db.tables import build_times
from app.domain.estimate import Past

RECENT = 10  # builds looked back at: machines and drivers change


def learn(tx: Tx, build_id: str, model: str, target_id: str, level: int, nodes: int, past: Past, at: datetime) -> None:
    values = {"build_id": build_id, "model": model, "target_id": target_id, "optimization_level": level}
    times = {"nodes": nodes, "total_s": past.total_s, "marks": past.marks, "created_at": at}
    tx.execute(insert_or(tx, build_times).values(**values, **times).on_conflict_do_nothing())


def of_model(tx: Tx, model: str, target_id: str, level: int) -> list[Past]:
    """Return the last builds of this model on this target at this optimization level."""
    return _recent(tx, build_times.c.model == model, build_times.c.target_id == target_id, _level(level))


def of_size(tx: Tx, nodes: int, target_id: str, level: int) -> list[Past]:
    """Return the last builds of models with a similar number of nodes (within 1.5×), stretched to this number."""
    near = build_times.c.nodes.between(int(nodes / 1.5), int(nodes * 1.5))
    return _recent(tx, near, build_times.c.target_id == target_id, _level(level), nodes=nodes)


def _level(level: int) -> ColumnElement[bool]:
    return build_times.c.optimization_level == level


def _recent(tx: Tx, *conditions: ColumnElement[bool], nodes: int | None = None) -> list[Past]:
    query = select(build_times.c.total_s, build_times.c.marks, build_times.c.nodes).where(*conditions)
    rows = tx.execute(query.order_by(build_times.c.created_at.desc()).limit(RECENT))
    return [Past(r.total_s, r.marks).stretched(nodes / max(1, r.nodes) if nodes else 1.0) for r in rows]

"""Names: set them, and find at call time what they mean for the machine that asks."""

from datetime import timedelta

from app.builds.parts import Caller, Parts
from app.builds.resolve import judge, resolve
from app.builds.submit import check
from app.db import builds, models, names, targets
from app.db.builds import BuildFilter, BuildRow
from app.db.engines import Described
from app.errors import Refused
from trtforge.contract.builds import Submit
from trtforge.contract.engines import EngineSummary, PlanRef
from trtforge.contract.names import Name, Want
from trtforge.contract.resolve import Resolve
from trtforge.contract.target import TargetSelector

LIVE_LOOKED_AT = 100  # live builds of a model


def set_name(parts: Parts, name: str, want: Want, caller: Caller) -> tuple[Name, bool]:
    """Let `name` stand for `want`; return it and whether it is new. The same want again changes nothing.

    Raises `Refused` as a submit of the same would: a name must stand for what can be built.
    """
    check(parts, Submit(model=want.model, spec=want.spec, target=want.target), caller)
    with parts.database.write() as tx:
        if models.hold(tx, want.model) is None:  # removed since it was checked
            raise Refused("model_unknown", f"No model {want.model} is here.")
        before = names.find(tx, name)
        if before is None or _want(before) != want:
            names.put(tx, name, want, caller.name, parts.now())
        now = names.find(tx, name)
    assert now is not None
    return now, before is None


def remove_name(parts: Parts, name: str, caller: Caller) -> None:
    """Let `name` stand for nothing; its history stays. Raises `Refused`: not_found."""
    with parts.database.write() as tx:
        _existing(names.find(tx, name), name)
        names.put(tx, name, None, caller.name, parts.now())


def find_name(parts: Parts, name: str) -> Name:
    """Raises `Refused`: not_found."""
    with parts.database.read() as tx:
        return _existing(names.find(tx, name), name)


def meant(parts: Parts, name: Name, machine: TargetSelector) -> EngineSummary:
    """Return the engine that the name means on `machine`. Raises `Refused`: no_compatible_engine."""
    return resolve(parts, wish(name, machine)).engine


def wish(name: Name, machine: TargetSelector) -> Resolve:
    """Return what a machine asks for when it asks for the name: what it does not say of itself, the name says."""
    said = machine.model_dump(exclude_none=True)
    target = TargetSelector(**{**name.target.model_dump(exclude_none=True), **said})
    return Resolve(model=name.model, spec=name.spec, target=target, policy=name.policy)


def in_the_making(parts: Parts, want: Resolve) -> BuildRow | None:
    """Return the live build of an engine that would serve `want`; None: there is none."""
    with parts.database.read() as tx:
        known = targets.known(tx, parts.now() - timedelta(seconds=parts.settings.lease_s))
        live = {
            row.engine_key: row
            for state in ("running", "queued")
            for row in builds.page(tx, BuildFilter(state, want.model), LIVE_LOOKED_AT, None)
            if row.stop is None and row.rebuild is None
        }
    judged = judge([_as_engine(row) for row in live.values()], want, known)
    return next((live[one.engine.engine_key] for one in judged if one.candidate.taken), None)


def _as_engine(row: BuildRow) -> Described:
    plan = PlanRef(digest=row.engine_key, size=0)  # there is none yet, and nobody asks
    return Described(row.engine_key, row.target, row.spec_effective, plan)


def _want(name: Name) -> Want:
    return Want(model=name.model, spec=name.spec, target=name.target, policy=name.policy)


def _existing(name: Name | None, asked: str) -> Name:
    if name is None:
        raise Refused("not_found", f"No name {asked}.")
    return name

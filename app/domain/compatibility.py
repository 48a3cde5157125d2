"""Can a machine take an engine, and what is it to ask for when there is none? The rules are the contract's.

They stand in `trtforge.contract.compatibility`, so that a machine judges by them with the service down.
"""

from collections.abc import Sequence
from typing import Any

from app.domain.differences import differences
from trtforge.contract.compatibility import POLICIES, allows, needed, objections, version_and_system
from trtforge.contract.resolve import Objection
from trtforge.contract.target import KnownTarget, TargetSelector

__all__ = ["POLICIES", "allows", "needed", "objections", "spec_objections", "to_build_for"]


def spec_objections(have: dict[str, Any], asked: dict[str, Any]) -> tuple[Objection, ...]:
    """Return the fields of the effective spec (as JSON) that are not what was asked; no policy overlooks them."""
    why = "another spec makes another engine"
    return tuple(
        Objection(field=d.field, have=d.have, asked=d.asked, needs=None, why=why) for d in differences(have, asked)
    )


def to_build_for(machine: TargetSelector, known: Sequence[KnownTarget]) -> TargetSelector:
    """Return the target to submit for an engine that `machine` can take; its own words when no known target fits."""
    for one in known:
        if one.capabilities.portable and not any(version_and_system(one.target, machine)):
            asked = set(machine.compute_capabilities or ())
            shared = asked <= set(one.target.compute_capabilities)  # then many machines share the engine
            if shared or asked <= set(one.capabilities.compute_capabilities):
                return TargetSelector(
                    builder=one.target.builder, compute_capabilities=None if shared else machine.compute_capabilities
                )
        elif not objections(one.target, machine):
            return TargetSelector(**one.target.model_dump())
    return machine

"""Which known target a selector means, and the exact fingerprint that goes into the engine key."""

import re
from collections.abc import Sequence
from typing import Any

from app.errors import Refused, trouble
from trtforge.contract.target import KnownTarget, Target, TargetSelector

CAPABILITY = re.compile(r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})")
NEVER_NULL = frozenset({"builder", "builder_version", "compute_capabilities", "os", "arch"})


def choose(selector: TargetSelector, known: Sequence[KnownTarget]) -> tuple[KnownTarget, Target]:
    """Return the one known target that `selector` means, and the exact target for the key.

    An empty selector means the default target. On a portable target the selector may name any non-empty subset of the
    compute capabilities that its builder supports; elsewhere they are the target's own.

    Raises `Refused`: `target_unknown`, `target_ambiguous` or `target_unsupported`, with `targets` listing those known.
    """
    given = _given(selector)
    if not given:
        one = _default(known)
        return one, one.target
    asked = given.pop("compute_capabilities", None)
    fitting = [k for k in known if all(getattr(k.target, name) == value for name, value in given.items())]
    if not fitting:
        raise _refused("target_unknown", f"No known target has {_words(given)}.", known, given)
    if asked is not None:
        fitting = _building_for(_normal(asked, known), fitting, known)
    if len(fitting) > 1:
        names = ", ".join(k.id for k in fitting)
        raise _refused("target_ambiguous", f"{len(fitting)} known targets fit: {names}.", known, given)
    one = fitting[0]
    if asked is None:
        return one, one.target
    return one, one.target.model_copy(update={"compute_capabilities": _normal(asked, known)})


def _given(selector: TargetSelector) -> dict[str, Any]:
    """Fields to compare. A null says nothing, except in a full fingerprint, where it says "none" (no MIG, say)."""
    given = selector.model_dump(exclude_none=True)
    if given.keys() >= NEVER_NULL:
        return selector.model_dump(exclude_unset=True)
    return given


def _default(known: Sequence[KnownTarget]) -> KnownTarget:
    defaults = [k for k in known if k.default] or list(known)
    if not defaults:
        raise _refused("target_unknown", "No target is known: no worker has reported one yet.", known, {})
    if len(defaults) > 1:
        raise _refused("target_ambiguous", "No target is the default, and several are known.", known, {})
    return defaults[0]


def _normal(asked: Sequence[str], known: Sequence[KnownTarget]) -> tuple[str, ...]:
    """Return the compute capabilities ascending and unique: the list is part of the key."""
    if not asked:
        raise _unsupported("An engine for no compute capability at all cannot be built.", asked, known)
    if odd := [c for c in asked if not CAPABILITY.fullmatch(c)]:
        raise _unsupported(f'{", ".join(map(repr, odd))} is not written like "8.9".', asked, known)
    return tuple(sorted(set(asked), key=_number))


def _number(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)


def _building_for(
    asked: tuple[str, ...], fitting: Sequence[KnownTarget], known: Sequence[KnownTarget]
) -> list[KnownTarget]:
    able = [k for k in fitting if _builds_for(asked, k)]
    if not able:
        choices = "; ".join(f"{k.id}: {_choices(k)}" for k in fitting)
        raise _unsupported(f"No target that fits builds for {', '.join(asked)} ({choices}).", asked, known)
    return able


def _builds_for(asked: tuple[str, ...], known: KnownTarget) -> bool:
    if known.capabilities.portable:
        return set(asked) <= set(known.capabilities.compute_capabilities)
    return set(asked) == set(known.target.compute_capabilities)


def _choices(known: KnownTarget) -> str:
    if known.capabilities.portable:
        return "any of " + ", ".join(known.capabilities.compute_capabilities)
    return "exactly " + ", ".join(known.target.compute_capabilities)


def _words(given: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in given.items()) or "these fields"


def _unsupported(message: str, asked: Sequence[str], known: Sequence[KnownTarget]) -> Refused:
    return _refused("target_unsupported", message, known, {"compute_capabilities": list(asked)})


def _refused(code: str, message: str, known: Sequence[KnownTarget], given: dict[str, Any]) -> Refused:
    targets = [{"id": k.id, "default": k.default, "target": k.target.model_dump(mode="json")} for k in known]
    return Refused(code, message, errors=(trouble(code, message, target=given),), targets=targets)

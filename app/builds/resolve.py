"""Find the engine that a machine can take: the exact one, else the best that the caller's policy allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from app.builds.parts import Parts
from app.db import engines, targets
from app.db.engines import Described
from app.domain.compatibility import POLICIES, allows, needed, objections, spec_objections, to_build_for
from app.domain.effective import effective
from app.errors import Refused
from trtforge.contract.builds import Difference, Nearest
from trtforge.contract.engines import EngineSummary
from trtforge.contract.resolve import Candidate, Objection, Resolve, Resolved
from trtforge.contract.target import KnownTarget, Target
from trtforge.contract.words import in_words

LOOKED_AT = 500  # the newest engines of a model
SHOWN = 20  # candidates in an answer, best first
MISSES = 3  # near misses in words


@dataclass(frozen=True)
class Judged:
    engine: Described
    candidate: Candidate

    @property
    def rank(self) -> tuple[int, int, int]:
        """Best first: strictest policy, fewest objections, fewest compute capabilities (its kernels are for fewer GPUs)."""
        needs, against = self.candidate.needs, self.candidate.objections
        rank = POLICIES.index(needs) if needs else len(POLICIES)
        return rank, len(against), len(self.engine.target["compute_capabilities"])


def resolve(parts: Parts, want: Resolve) -> Resolved:
    """Return the best engine for the machine that asks. Raises `Refused`: no_compatible_engine, with the near misses."""
    with parts.database.read() as tx:
        stored = engines.described(tx, want.model, LOOKED_AT)
        known = targets.known(tx, parts.now() - timedelta(seconds=parts.settings.lease_s))
    judged = [_with_bytes(parts, one) for one in judge(stored, want, known)]
    best = next((one for one in judged if one.candidate.taken), None)
    summary = _summary(parts, best.candidate.engine_key) if best else None
    if best is None or summary is None or best.candidate.needs is None:
        raise _nothing(want, judged, known)
    return Resolved(
        engine=summary,
        policy=best.candidate.needs,
        nearest=_nearest(best.candidate),
        candidates=_shown(judged),
    )


def judge(stored: Sequence[Described], want: Resolve, known: Sequence[KnownTarget]) -> list[Judged]:
    """Return every engine with what speaks against it, best first."""
    asked = _Asked(want, known)
    return sorted((Judged(engine, asked.candidate(engine)) for engine in stored), key=lambda one: one.rank)


class _Asked:
    """What is asked for; each target and each spec is judged once, however many engines share it.

    The spec is meant as it is in the key: with the defaults of the engine's own builder.
    """

    def __init__(self, want: Resolve, known: Sequence[KnownTarget]) -> None:
        self._want = want
        tables = {k.target.builder: k.capabilities for k in reversed(known)}
        spec = want.spec
        self._effective = {b: effective(spec, t).model_dump(mode="json") for b, t in tables.items()} if spec else {}
        self._judged: dict[tuple[int, int], tuple[Objection, ...]] = {}  # by identity: they live as long as the engines

    def candidate(self, engine: Described) -> Candidate:
        against = (*self._once(engine.target, engine.target), *self._once(engine.target, engine.spec))
        needs = needed(against)
        taken = allows(self._want.policy, needs)
        return Candidate(engine_key=engine.engine_key, taken=taken, needs=needs, objections=against)

    def _once(self, target: dict[str, Any], judged: dict[str, Any]) -> tuple[Objection, ...]:
        key = id(target), id(judged)
        if key not in self._judged:
            self._judged[key] = self._target(target) if judged is target else self._spec(target, judged)
        return self._judged[key]

    def _target(self, target: dict[str, Any]) -> tuple[Objection, ...]:
        return objections(Target.model_validate(target), self._want.target)

    def _spec(self, target: dict[str, Any], spec: dict[str, Any]) -> tuple[Objection, ...]:
        if self._want.spec is None:
            return ()
        asked: dict[str, Any] = self._effective.get(target["builder"]) or {
            **spec,  # a builder whose defaults nobody here knows: only what was said counts
            **self._want.spec.model_dump(mode="json", exclude_none=True, exclude_unset=True),
        }
        return spec_objections(spec, asked)


def _with_bytes(parts: Parts, one: Judged) -> Judged:
    """Refuse an engine whose plan is gone or cut: it will be built anew when it is asked for."""
    plan, candidate = one.engine.plan, one.candidate
    if not candidate.taken or parts.store.has_plan(plan.digest, plan.size):
        return one
    gone = Objection(field="plan", have=None, asked=plan.digest, needs=None, why="its bytes are missing or damaged")
    return Judged(one.engine, Candidate(engine_key=candidate.engine_key, taken=False, needs=None, objections=(gone,)))


def _summary(parts: Parts, key: str) -> EngineSummary | None:
    with parts.database.read() as tx:
        return engines.find(tx, key)


def _shown(judged: Sequence[Judged]) -> tuple[Candidate, ...]:
    return tuple(one.candidate for one in judged[:SHOWN])


def _nearest(candidate: Candidate) -> Nearest:
    differs = tuple(Difference(field=o.field, have=o.have, asked=o.asked) for o in candidate.objections)
    return Nearest(engine_key=candidate.engine_key, differs=differs)


def _nothing(want: Resolve, judged: Sequence[Judged], known: Sequence[KnownTarget]) -> Refused:
    target = to_build_for(want.target, known).model_dump(mode="json", exclude_none=True)
    spec = want.spec.model_dump(mode="json", exclude_unset=True) if want.spec else {}
    misses = [_in_words(one.candidate) for one in judged[:MISSES]]
    detail = f"No engine of this model fits under policy {want.policy}" + (
        f"; near misses: {'; '.join(misses)}." if misses else ": none is here."
    )
    return Refused(
        "no_compatible_engine",
        detail,
        submit={"model": want.model, "spec": spec, "target": target},
        nearest=_nearest(judged[0].candidate).model_dump(mode="json") if judged else None,
        candidates=[one.model_dump(mode="json") for one in _shown(judged)],
    )


def _in_words(candidate: Candidate) -> str:
    why = ", ".join(in_words(o.field, o.have, o.asked) for o in candidate.objections)
    looser = f" (policy {candidate.needs} takes it)" if candidate.needs and not candidate.taken else ""
    return f"{candidate.engine_key[:19]}… has {why}{looser}"

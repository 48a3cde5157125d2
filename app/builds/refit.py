"""Ask for an engine with the weights of another model: a build of its own, without the search for kernels.

The engine it makes has a key like any other: its model is the new one, and its spec says which engine it was made from.
"""

from collections.abc import Sequence
from dataclasses import replace

from app.builds.decide import Wanted
from app.builds.parts import Caller, Parts
from app.builds.submit import answer, check
from app.db import engines, models
from app.errors import Refused
from trtforge.contract.builds import Refit, Submit, Submitted
from trtforge.contract.engines import Manifest
from trtforge.contract.models import Model, Tensor
from trtforge.contract.target import TargetSelector


def refit(parts: Parts, key: str, asked: Refit, caller: Caller, idempotency_key: str | None, body: bytes) -> Submitted:
    """Ask for the engine `key` with the weights of `asked.model`. Raises `Refused`.

    Its codes are those of a submit, and not_found, not_refittable, refit_mismatch.
    """
    with parts.database.read() as tx:
        stored, model = engines.manifest(tx, key), models.find(tx, asked.model)
    if stored is None:
        raise Refused("not_found", f"No engine {key}.")
    base = Manifest.model_validate_json(stored)
    _check(base, model, asked.model)
    target = TargetSelector(**base.target.model_dump())
    submit = Submit(model=asked.model, spec=base.spec.requested, target=target, options=asked.options)

    def wanted() -> Wanted:
        spec = base.spec.effective.model_copy(update={"refitted_from": key})
        return replace(check(parts, submit, caller), spec=spec)

    return answer(parts, submit, caller, idempotency_key, f"refit {key} ".encode() + body, wanted)


def _check(base: Manifest, model: Model | None, digest: str) -> None:
    refit = base.spec.effective.refit or "none"
    if refit == "none":
        raise Refused("not_refittable", "It was built without `refit`.")
    if refit == "identical" and digest != base.model.digest:
        message = f"It was built for a refit with its own weights alone, those of {base.model.digest}."
        raise Refused("refit_mismatch", message, remedy='Give that model, or build an engine with `refit` "all".')
    if model is None:
        return  # as a submit refuses it
    for kind, have, asked in (
        ("input", base.model.inputs, model.inputs),
        ("output", base.model.outputs, model.outputs),
    ):
        if have is not None and (odd := _differing(have, asked)):
            message = f"The model's {kind}s are not those of the engine: {', '.join(odd)}."
            raise Refused("refit_mismatch", message, tensors=odd)


def _differing(have: Sequence[Tensor], asked: Sequence[Tensor]) -> list[str]:
    """Return the names of tensors that are not the same in both; what a model calls its open axes means nothing here."""
    mine, theirs = ({one.name: (one.dtype, one.shape) for one in several} for several in (have, asked))
    return sorted(name for name in mine | theirs if mine.get(name) != theirs.get(name))

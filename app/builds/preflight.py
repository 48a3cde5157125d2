"""Say before a build what it would fail on: the checks of a submit, the parser's verdict and the shape doctor."""

from datetime import timedelta
from math import ceil

from app.builds.parts import Parts, in_thread
from app.db import models, targets
from app.domain.effective import effective
from app.domain.targets import choose
from app.errors import Refused
from app.intake.checks import profile_template, trtexec_flags
from app.intake.options import check_options
from app.intake.profiles import check_profiles
from app.worker import preflight as worker
from app.worker.messages import Examined, PreflightRequest
from trtforge.contract.models import Model, Preflight, PreflightAsk
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import BuildSpec
from trtforge.contract.target import KnownTarget

DOCTOR_S = 2.0  # seconds for the shape doctor; an answer is expected within 3
GRAPH = "model.onnx"  # the only name of the graph that a child sees


async def preflight(parts: Parts, digest: str, asked: PreflightAsk) -> Preflight:
    """Return everything that a build of this model would fail on. Raises `Refused`: not_found, target_…"""
    model, known = await in_thread(lambda: _look(parts, digest, asked))
    troubles = [*model.problems, *check_options(asked.spec, known.capabilities)]
    wrong = check_profiles(asked.spec.profiles, model.inputs)
    spec = asked.spec if not wrong else asked.spec.model_copy(update={"profiles": ()})
    found = await _examine(parts, digest, known, spec)
    problems = (*troubles, *wrong, *map(Trouble.model_validate, found.problems))
    template = BuildSpec.model_validate({"profiles": found.profiles or profile_template(model.inputs)}).profiles
    return Preflight(
        ok=not problems,
        problems=problems,
        warnings=tuple(map(Trouble.model_validate, found.warnings)),
        profile_template=template,
        trtexec=trtexec_flags(template),
    )


def _look(parts: Parts, digest: str, asked: PreflightAsk) -> tuple[Model, KnownTarget]:
    with parts.database.read() as tx:
        model = models.find(tx, digest)
        known = targets.known(tx, parts.now() - timedelta(seconds=parts.settings.lease_s))
    if model is None or not parts.store.has_model(digest):
        raise Refused("not_found", f"No model {digest}.")
    return model, choose(asked.target, known)[0]


async def _examine(parts: Parts, digest: str, known: KnownTarget, spec: BuildSpec) -> Examined:
    seconds = parts.settings.inspect_timeout_s
    request = PreflightRequest(
        builder=known.target.builder,
        model=GRAPH,
        profiles=effective(spec, known.capabilities).model_dump(mode="json")["profiles"],
        cpu_s=ceil(seconds),
        doctor_s=DOCTOR_S,
    )
    folder = await in_thread(lambda: parts.store.scratch("preflight"))
    try:
        await in_thread(lambda: parts.store.link_model(digest, folder / GRAPH))
        return await worker.preflight(request, folder, seconds)
    finally:
        await in_thread(lambda: parts.store.discard(folder))

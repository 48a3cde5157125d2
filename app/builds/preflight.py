"""Say before a build what it would fail on: the checks of a submit, the parser's verdict and the shape doctor."""

from datetime import timedelta
from math import ceil

from app.builds.layout import GRAPH, is_here, lay_out
from app.builds.parts import Parts, in_thread
from app.builds.plugins import PluginUnusable
from app.db import models, targets
from app.domain.effective import effective
from app.domain.targets import choose
from app.errors import Refused
from app.intake.checks import profile_template, trtexec_flags
from app.intake.options import check_options
from app.intake.profiles import check_profiles
from app.intake.unfit import finding
from app.worker import preflight as worker
from app.worker.messages import Examined, PreflightRequest
from trtforge.contract.models import Model, Preflight, PreflightAsk
from trtforge.contract.problem import Trouble
from trtforge.contract.spec import BuildSpec
from trtforge.contract.target import KnownTarget

DOCTOR_S = 2.0  # seconds for the shape doctor; an answer is expected within 3


async def preflight(parts: Parts, digest: str, asked: PreflightAsk) -> Preflight:
    """Return everything that a build of this model would fail on. Raises `Refused`: not_found, target_…"""
    model, known = await in_thread(lambda: _look(parts, digest, asked))
    troubles = [*model.problems, *check_options(asked.spec, known.capabilities)]
    wrong = check_profiles(asked.spec.profiles, model.inputs)
    spec = asked.spec if not wrong else asked.spec.model_copy(update={"profiles": ()})
    found = await _examine(parts, model, known, spec)
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
    if model is None or not is_here(parts.store, model):
        raise Refused("not_found", f"No model {digest}.")
    return model, choose(asked.target, known)[0]


async def _examine(parts: Parts, model: Model, known: KnownTarget, spec: BuildSpec) -> Examined:
    seconds = parts.settings.inspect_timeout_s
    approved = tuple(
        name for name in spec.plugins or () if name in known.capabilities.plugins
    )  # the others are refused
    said = effective(spec.model_copy(update={"plugins": approved}), known.capabilities).model_dump(mode="json")
    folder = await in_thread(lambda: parts.store.scratch("preflight"))
    try:
        await in_thread(lambda: lay_out(parts.store, model, folder))
        plugins = await in_thread(lambda: parts.plugins.lay_out(said["plugins"], folder))
        request = PreflightRequest(known.target.builder, GRAPH, said["profiles"], ceil(seconds), DOCTOR_S, plugins)
        return await worker.preflight(request, folder, seconds)
    except PluginUnusable as unusable:
        return Examined([finding("plugin_unusable", str(unusable), plugin=unusable.name)], [], said["profiles"])
    finally:
        await in_thread(lambda: parts.store.discard(folder))

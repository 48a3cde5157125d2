"""Deserialize what was just built, in a fresh child on the GPU that it was built for, before it is published.

The lock of the device is still held. It stays stage build; a phase says that it is under way, and how long it took.
"""

import asyncio
from pathlib import Path
from time import monotonic, time
from typing import Any

import structlog
from pydantic import ValidationError

from app.builds.attempt import Attempt
from app.builds.ending import failure
from app.builds.layout import PLAN
from app.builds.parts import Parts
from app.db.builds import BuildRow
from app.worker import messages as said
from app.worker.devices import Device
from app.worker.process import Child, Exit, ProtocolBroken
from trtforge.contract.builds import Failure
from trtforge.contract.engines import LoadedEngine

PHASE = "Loading the engine on its GPU"
PHASE_ID = 0  # a builder counts its own from 1

Answer = said.Loaded | said.Failed | said.Stopped | None

log = structlog.get_logger()


class Unloaded(Exception):
    """The engine must be loaded before it is published, and was not. `failure`: None where a stop came first."""

    def __init__(self, failure: Failure | None) -> None:
        super().__init__(failure.message if failure else "stopped")
        self.failure = failure


async def load(
    parts: Parts, row: BuildRow, attempt: Attempt, device: Device, plugins: list[dict[str, Any]], folder: Path
) -> LoadedEngine | None:
    """Return what the plan in `folder` says of itself, with the libraries of `plugins` there.

    None where it is not to be loaded here, or could not be and need not.

    What it could not tell, and why it could not be loaded, joins the attempt's warnings. Raises `Unloaded` where
    `TRTFORGE_LOAD_ENGINES` is `require`, and `LeaseLost`.
    """
    if parts.settings.load_engines == "off" or row.rebuild is not None or not _fits(row, device):
        return None
    attempt.hear(said.PhaseStarted(PHASE_ID, None, PHASE, None, time()))
    began = monotonic()
    try:
        answer, native = await _asked(parts, attempt, device, _request(parts, row, plugins), folder)
    finally:
        attempt.output.finish()
        attempt.hear(said.PhaseFinished(PHASE_ID, time(), monotonic() - began))
    found = _judged(parts, attempt, answer, native)
    await attempt.flush_last()
    return found


def _fits(row: BuildRow, device: Device) -> bool:
    return device.gpu is not None and device.gpu.compute_capability in row.target["compute_capabilities"]


def _request(parts: Parts, row: BuildRow, plugins: list[dict[str, Any]]) -> said.LoadRequest:
    """Code from the plan is run only where it is the builder's own lean runtime, or of a library that was approved."""
    spec = row.spec_effective
    first = spec["profiles"][0] if spec["profiles"] else {}
    without_weights = spec.get("stripped_plan") and not spec.get("refitted_from")  # there is nothing to run it with
    return said.LoadRequest(
        builder=row.target["builder"],
        plan=PLAN,
        plugins=plugins,
        host_code=bool(plugins or spec.get("version_compatible")),
        contexts=0 if without_weights else parts.settings.measure_contexts,
        seconds=parts.settings.measure_s,
        values={name: three["opt"] for name, three in first.items() if three.get("values")},
    )


async def _asked(
    parts: Parts, attempt: Attempt, device: Device, request: said.LoadRequest, folder: Path
) -> tuple[Answer, str | None]:
    """Return the child's last word, or None and what became of it. It is gone by then, killed when a stop was asked."""
    end = monotonic() + parts.settings.load_timeout_s
    try:
        child = await Child.spawn(request, folder, attempt.output.write, more=device.environment)
    except OSError as error:
        return None, f"no process could be started ({error.strerror})"
    hearing = asyncio.create_task(_last_word(child))
    try:
        while not hearing.done() and monotonic() < end and not attempt.stopping:
            await attempt.tend(child)
            await attempt.pause(hearing)
    finally:
        hearing.cancel()
        child.kill()
        ended = await attempt.gone(child)
    if not hearing.done() or hearing.cancelled():
        return None, f"it took more than {parts.settings.load_timeout_s:g} seconds"
    try:
        return hearing.result(), _how(ended)
    except ProtocolBroken as error:
        return None, f"the process that loads it spoke nonsense: {error}"


async def _last_word(child: Child) -> Answer:
    """Raises `ProtocolBroken` also for an account that is none."""
    async for message in child.messages():
        if isinstance(message, said.Loaded):
            try:
                LoadedEngine.model_validate(message.engine)
            except ValidationError as error:
                raise ProtocolBroken(f"no account of an engine: {error.errors()[0]['msg']}") from error
        if isinstance(message, said.Loaded | said.Failed | said.Stopped):
            return message
    return None


def _how(ended: Exit) -> str:
    return f"the process that loads it ended with {ended.signal or ended.code} and no answer"


def _judged(parts: Parts, attempt: Attempt, answer: Answer, ended: str | None) -> LoadedEngine | None:
    required = parts.settings.load_engines == "require"
    if attempt.stopping and not isinstance(answer, said.Loaded):
        if required:
            raise Unloaded(None)
        attempt.warnings.append("The engine was not loaded: its worker was shutting down.")
        return None
    if isinstance(answer, said.Loaded):
        for words in answer.warnings:
            attempt.hear(said.Log("warning", words))
        return LoadedEngine.model_validate(answer.engine)
    why = answer.message if isinstance(answer, said.Failed) else ended or "it did not say why"
    native = answer.native if isinstance(answer, said.Failed) else None
    log.warning("engine_unloadable", reason=why)
    if required:
        raise Unloaded(failure("engine_unloadable", f"The engine does not load: {why}", stage="build", native=native))
    attempt.hear(said.Log("warning", f"The engine was built and could not be loaded on its GPU: {why}"))
    return None

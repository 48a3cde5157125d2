"""Have a child say what a builder would object to. Whatever the model does to it, the answer is a value."""

import asyncio
from pathlib import Path

from app.intake.unfit import finding
from app.worker.messages import Examined, Failed, PreflightRequest
from app.worker.process import Child, Exit, ProtocolBroken


async def preflight(request: PreflightRequest, folder: Path, timeout_s: float) -> Examined:
    """Carry out `request` in a child that works in `folder`, where the model lies, within `timeout_s` seconds.

    A crash of the parser is a problem (builder_crashed), one that takes too long too (model_unreadable). Raises
    `OSError` when no child can be started.
    """
    child = await Child.spawn(request, folder, lambda _: None)
    try:
        return await asyncio.wait_for(_answer(child, request), timeout_s)
    except TimeoutError:
        return _nothing(request, "model_unreadable", f"The parser took more than {timeout_s:g} seconds.")
    except ProtocolBroken:
        return _nothing(request, "builder_crashed", "The parser was led to say nonsense.")
    finally:
        child.kill()
        await child.wait()


async def _answer(child: Child, request: PreflightRequest) -> Examined:
    async for message in child.messages():
        match message:
            case Examined():
                return message
            case Failed():
                return _nothing(request, message.code, message.message)
    return _ended(request, await child.wait())


def _ended(request: PreflightRequest, exit_: Exit) -> Examined:
    if exit_.signal in ("SIGXCPU", "SIGKILL"):
        return _nothing(request, "model_unreadable", "The parser took too much processor time or memory.")
    how = f"was ended by {exit_.signal}" if exit_.signal else f"exited with {exit_.code}"
    return _nothing(request, "builder_crashed", f"The parser {how} on this model.", signal=exit_.signal)


def _nothing(request: PreflightRequest, code: str, message: str, **where: str | None) -> Examined:
    return Examined([finding(code, message, **where)], [], request.profiles)

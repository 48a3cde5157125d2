"""Have a child inspect a model. Whatever the file does to it, the answer is a value."""

import asyncio
import os
from collections.abc import Mapping
from math import ceil
from pathlib import Path

from app.worker.messages import Inspected, InspectRequest, Refused
from app.worker.process import Child, Exit, ProtocolBroken

MAX_OPSET = 24  # of the default domain: the newest that the parsers of TensorRT 10.16, 11 and RTX 1.7 know
_NAME = "model.onnx"


async def inspect(
    model: Path, folder: Path, timeout_s: float, files: Mapping[str, int] | None = None
) -> Inspected | Refused:
    """Inspect the file `model` in a child of its own within `timeout_s` seconds, of the clock and of the processor.

    `files` are the names and sizes of its companions, which lie in `folder` already.

    The child works in `folder`, which is fresh and which the caller removes; it sees a link to the model there.
    Raises `OSError` when no child can be started.
    """
    _link(model, folder / _NAME)
    request = InspectRequest(_NAME, MAX_OPSET, dict(files or {}), ceil(timeout_s))
    child = await Child.spawn(request, folder, lambda _: None)
    try:
        return await asyncio.wait_for(_answer(child), timeout_s)
    except TimeoutError:
        return _unreadable(f"it took more than {timeout_s:g} seconds")
    except ProtocolBroken:
        return _unreadable("the reader was led to say nonsense")
    finally:
        child.kill()
        await child.wait()


async def _answer(child: Child) -> Inspected | Refused:
    async for message in child.messages():
        if isinstance(message, Inspected | Refused):
            return message
    ended = await child.wait()
    if ended.signal == "SIGKILL":  # not ours: the host's, most likely for memory; the model need not be to blame
        return Refused("unavailable", "The reader of the model was killed by the host, most likely for memory.")
    return _unreadable(_why(ended))


def _why(exit_: Exit) -> str:
    if exit_.signal in ("SIGXCPU", "SIGKILL"):
        return "it took too much processor time or memory"
    return (
        f"it crashed the reader ({exit_.signal})"
        if exit_.signal
        else f"the reader ended without an answer ({exit_.code})"
    )


def _unreadable(why: str) -> Refused:
    return Refused("model_unreadable", f"The model could not be read: {why}.")


def _link(model: Path, name: Path) -> None:
    """A hard link keeps the bytes while the child reads, even if the model is deleted; else a symbolic one."""
    try:
        os.link(model, name)
    except OSError:
        name.symlink_to(model.resolve())

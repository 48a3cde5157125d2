"""Ask a builder, in a child, what it is and can do."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from app.worker.messages import Failed, Probed, ProbeRequest
from app.worker.process import Child, ProtocolBroken

_TAIL = 2000  # bytes of its output that are quoted


class BuilderUnusable(Exception):
    """The builder does not start on this machine; the text ends with the last of what it wrote."""


async def probe(builder: str, timeout_s: float) -> Probed:
    """Return what `builder` ("tensorrt_rtx" or "tensorrt") reports in `timeout_s` seconds. Raises `BuilderUnusable`."""
    output = bytearray()

    def keep(chunk: bytes) -> None:
        output.extend(chunk)
        del output[:-_TAIL]

    with TemporaryDirectory(prefix="trtforge-probe-", ignore_cleanup_errors=True) as folder:
        child = await Child.spawn(ProbeRequest(builder), Path(folder), keep)
        try:
            answer = await asyncio.wait_for(_answer(child), timeout_s)
        except TimeoutError:
            answer = f"it took more than {timeout_s:g} seconds"
        except ProtocolBroken as error:
            answer = str(error)
        finally:
            child.kill()
            await child.wait()
    if isinstance(answer, Probed):
        return answer
    tail = output.decode(errors="replace").strip()
    raise BuilderUnusable(f"{builder} does not start: {answer}" + (f"\n{tail}" if tail else ""))


async def _answer(child: Child) -> Probed | str:
    async for message in child.messages():
        match message:
            case Probed():
                return message
            case Failed():
                return message.message
    ended = await child.wait()
    return f"it ended with {ended.signal or ended.code} and no answer"

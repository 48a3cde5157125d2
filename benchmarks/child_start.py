"""Start of a child: spawn → the builder has reported itself, beside an empty Python."""

import asyncio
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from app.worker.messages import Probed, ProbeRequest
from app.worker.process import Child
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope


def measure(scope: Scope) -> list[Line]:
    ours, loaded, empty = [], [], []
    for _ in range(scope.rounds(15, 5)):
        ours.append(asyncio.run(_child(scope.folder)))
        loaded.append(_python("import tensorrt_rtx as trt; trt.Builder(trt.Logger(trt.Logger.ERROR))"))
        empty.append(_python("pass"))
    how = "spawn → it has said what the builder is (imports, a builder, a config), beside whole processes; rounds alternate."
    return [
        Line(
            what="start of a child with the builder loaded",
            unit="ms",
            ours=Spread.of(ours),
            beside=name,
            theirs=Spread.of(theirs),
            goal="",
            met=None,
            how=how,
        )
        for name, theirs in (("python that makes a builder", loaded), ("python -c pass", empty))
    ]


async def _child(folder: Path) -> float:
    began = perf_counter()
    child = await Child.spawn(ProbeRequest("tensorrt_rtx"), folder, lambda _: None)
    try:
        async for message in child.messages():
            if isinstance(message, Probed):
                return (perf_counter() - began) * 1000
            raise RuntimeError(f"the child said {message}")
        raise RuntimeError("the child said nothing")
    finally:
        child.kill()
        await child.wait()


def _python(code: str) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (perf_counter() - began) * 1000

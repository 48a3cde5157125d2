"""DELETE → terminal: in the builder's silence, where only the kill helps, and right after its first callback."""

from time import monotonic, perf_counter, sleep

from benchmarks.report import Line, Spread
from benchmarks.scope import Scope
from benchmarks.service import Service, light_model
from trtforge.client import Client
from trtforge.contract.builds import Build, Submit
from trtforge.contract.spec import BuildSpec

GRACE_S = 1.0  # shorter than the default: what counts is what comes on top
OVER_S = 0.5  # the goal
SILENT_S = 1.0  # longer than the pauses between callbacks
LOOK_S = 60.0


def measure(scope: Scope) -> list[Line]:
    number = 0
    lines = []
    with Service(scope.folder, cancel_grace_s=str(GRACE_S)) as service, Client(service.url) as client:
        model = client.upload(light_model("densenet121")).digest
        for when, silent in (("in the silent window", True), ("after the first callback", False)):
            took: list[float] = []
            ends: list[str] = []
            for _ in range(scope.rounds(5, 2)):
                number += 1
                seconds, build = _cancelled(client, model, 8 << 30 | number << 20, silent)
                took.append(seconds)
                ends.append(str(build.cancel.ended_by) if build.cancel else "nothing")
            lines.append(_line(when, took, ends))
    return lines


def _line(when: str, took: list[float], ends: list[str]) -> Line:
    counted = ", ".join(f"{ends.count(end)} x {end}" for end in sorted(set(ends)))
    return Line(
        what=f"cancel {when}",
        unit="s",
        ours=Spread.of(took),
        beside=f"grace {GRACE_S:g} s",
        theirs=Spread(GRACE_S, GRACE_S, GRACE_S, 1),
        goal=f"at most grace + {OVER_S} s",
        met=max(took) <= GRACE_S + OVER_S,
        how=f"DELETE → the terminal event over SSE, light_densenet121, TRTFORGE_CANCEL_GRACE_S={GRACE_S:g}; ended by: "
        f"{counted}.",
    )


def _cancelled(client: Client, model: str, workspace: int, silent: bool) -> tuple[float, Build]:
    submitted = client.submit(Submit(model=model, spec=BuildSpec(workspace_bytes=workspace)))
    if submitted.build is None:
        raise RuntimeError("nothing to build")
    build_id = submitted.build.id
    if silent:
        _await_silence(client, build_id)
    else:
        next(e for e in client.events(build_id) if e.type == "phase_started")
    began = perf_counter()
    client.cancel(build_id, reason="measured")
    *_, last = client.events(build_id)
    took = perf_counter() - began
    if last.type != "cancelled":
        raise RuntimeError(f"the build ended with {last.type}")
    return took, client.build(build_id)


def _await_silence(client: Client, build_id: str) -> None:
    end = monotonic() + LOOK_S
    while monotonic() < end:
        build = client.build(build_id)
        if build.stage == "build" and build.progress and build.progress.silent_s > SILENT_S:
            return
        sleep(0.05)
    raise RuntimeError(f"the builder was never silent for {SILENT_S} s")

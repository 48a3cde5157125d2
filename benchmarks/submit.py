"""How many submits a second by disposition, beside reading and checking the same body alone."""

import json

from app.worker.locks import try_lock
from benchmarks.lookup import CONNECTIONS, ROUND_S, engine
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope, load, server
from benchmarks.service import Service
from trtforge.client import Client

GOALS = {"created": 0.1, "joined": 0.3, "cached": 0.3}
EXPECTED = {"created": {"201"}, "joined": {"200", "201"}, "cached": {"200"}, "validated": {"200"}}


def measure(scope: Scope) -> list[Line]:
    found: dict[str, list[float]] = {"created": [], "joined": [], "cached": [], "validated": []}
    with (
        Service(scope.folder, slots="1") as service,
        Client(service.url) as client,
        server("usual", scope.folder) as port,
    ):
        model = client.manifest(engine(client, "squeezenet")).model.digest
        held = try_lock(scope.folder / "locks" / "cpu-0.lock", {"build": "bench", "attempt": 0})
        if held is None:
            raise RuntimeError("the device is busy")
        for number in range(scope.rounds(3, 1)):
            asked = {name: _body(model, workspace) for name, workspace in _workspaces().items()}
            for name, body in asked.items():
                where = (port, "/validate") if name == "validated" else (service.port, "/v1/builds")
                found[name].append(_per_second(name, *where, body, (number + 1) * 1_000_000))
        held.release()
    validated = Spread.of(found["validated"])
    return [_line(name, Spread.of(found[name]), validated) for name in GOALS]


def _workspaces() -> dict[str, str | None]:
    """Another workspace is another key; `@N` counts up."""
    return {"created": "8590@N", "joined": "8589934593", "cached": None, "validated": "8590@N"}


def _body(model: str, workspace: str | None) -> str:
    spec = "{}" if workspace is None else f'{{"workspace_bytes": {workspace}}}'
    return f'{{"model": {json.dumps(model)}, "spec": {spec}}}'


def _per_second(name: str, port: int, path: str, body: str, first: int) -> float:
    asked = {"port": port, "path": path, "body": body, "first": first, "method": "POST"}
    found = load("rate", connections=CONNECTIONS, seconds=ROUND_S, **asked)
    if not set(found["answers"]) <= EXPECTED[name]:
        raise RuntimeError(f"{name}: answers {found['answers']}")
    return float(found["per_second"])


def _line(name: str, ours: Spread, validated: Spread) -> Line:
    return Line(
        what=f"submits, {name}",
        unit="/s",
        ours=ours,
        beside="validation alone",
        theirs=validated,
        goal=f"at least {GOALS[name]}x",
        met=ours.median / validated.median >= GOALS[name],
        how=f"{CONNECTIONS} kept connections, {ROUND_S:g} s a round; SQLite with synchronous=FULL; the device is held, so "
        "that no build takes the processor; validation is a FastAPI route with the same body type; rounds alternate.",
    )

"""What the service adds to a build: submit → terminal event over HTTP, beside the bare builder in a fresh process."""

from time import perf_counter

from benchmarks.report import Line, Spread
from benchmarks.scope import Scope, start
from benchmarks.service import Service, light_model
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.spec import BuildSpec

FACTOR, PLUS_S = 1.03, 0.5  # the goal
ROUND_BYTES = 1 << 20  # each round has that much more workspace, hence a key of its own and the same work


def measure(scope: Scope) -> list[Line]:
    with Service(scope.folder) as service, Client(service.url) as client:
        return [_model(scope, client, name) for name in ("resnet50", "inception_v2")]


def _model(scope: Scope, client: Client, name: str) -> Line:
    known, model = client.targets().items[0], light_model(name)
    digest = client.upload(model).digest
    defaults = known.capabilities.defaults
    ours: list[float] = []
    bare: list[float] = []
    for number in range(scope.rounds(5, 2)):
        workspace = defaults.workspace_bytes + number * ROUND_BYTES
        words = [str(defaults.optimization_level), str(workspace), ",".join(known.target.compute_capabilities)]
        if number % 2:
            ours.append(_served(client, digest, workspace))
        bare.append(_bare(str(model), str(scope.folder / "bare.plan"), *words))
        if not number % 2:
            ours.append(_served(client, digest, workspace))
    return _line(name, ours, bare)


def _line(name: str, ours: list[float], bare: list[float]) -> Line:
    limit = FACTOR * Spread.of(bare).median + PLUS_S
    return Line(
        what=f"build of light_{name} through the service",
        unit="s",
        ours=Spread.of(ours),
        beside="bare builder",
        theirs=Spread.of(bare),
        goal=f"at most {FACTOR}x + {PLUS_S} s = {limit:.3g} s",
        met=Spread.of(ours).median <= limit,
        how="POST to the terminal event over SSE, model uploaded before, a new key each round; beside it a fresh process "
        "that imports, parses, builds with the same options and writes the plan; rounds alternate.",
    )


def _served(client: Client, digest: str, workspace: int) -> float:
    began = perf_counter()
    submitted = client.submit(Submit(model=digest, spec=BuildSpec(workspace_bytes=workspace)))
    if submitted.disposition != "created" or submitted.build is None:
        raise RuntimeError(f"disposition {submitted.disposition}")
    *_, last = client.events(submitted.build.id)
    took = perf_counter() - began
    if last.type != "succeeded":
        raise RuntimeError(f"the build ended with {last.type}")
    return took


def _bare(*words: str) -> float:
    began = perf_counter()
    process = start("bare", *words)
    process.wait()
    took = perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"the bare builder ended with {process.returncode}")
    return took

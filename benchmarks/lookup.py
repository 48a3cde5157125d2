"""How many manifests a second, beside a FastAPI route that says hello."""

from benchmarks.report import Line, Spread
from benchmarks.scope import Scope, load, server
from benchmarks.service import Service, light_model
from trtforge.client import Client
from trtforge.contract.builds import Submit

CONNECTIONS = 16
ROUND_S = 2.0
GOAL = 0.75


def measure(scope: Scope) -> list[Line]:
    ours, hello = [], []
    with Service(scope.folder) as service, Client(service.url) as client, server("usual", scope.folder) as usual:
        key = engine(client, "squeezenet")
        for _ in range(scope.rounds(5, 2)):
            ours.append(per_second(service.port, f"/v1/engines/{key}"))
            hello.append(per_second(usual, "/hello"))
    ratio = Spread.of(ours).median / Spread.of(hello).median
    return [
        Line(
            what="lookup of an engine (GET manifest)",
            unit="/s",
            ours=Spread.of(ours),
            beside="FastAPI hello",
            theirs=Spread.of(hello),
            goal=f"at least {GOAL}x",
            met=ratio >= GOAL,
            how=f"{CONNECTIONS} kept connections from another process, {ROUND_S:g} s a round, one engine; rounds alternate.",
        )
    ]


def engine(client: Client, name: str) -> str:
    """Build a light model and return its engine key."""
    model = client.upload(light_model(name)).digest
    submitted = client.submit(Submit(model=model), wait_s=60)
    if submitted.build is None or submitted.build.state != "succeeded":
        raise RuntimeError(f"{name} was not built")
    return submitted.build.engine_key


def per_second(port: int, path: str) -> float:
    found = load("rate", port=port, path=path, connections=CONNECTIONS, seconds=ROUND_S)
    if set(found["answers"]) != {"200"}:
        raise RuntimeError(f"{path} was answered {found['answers']}")
    return float(found["per_second"])

"""How fast 16 clients get a plan, beside FastAPI's FileResponse as it comes."""

from pathlib import Path

from benchmarks.models import heavy
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope, load, server
from benchmarks.service import Service
from trtforge.client import Client
from trtforge.contract.builds import Submit

CLIENTS, EACH = 16, 2
SIZE = 48 << 20  # bytes of weights, hence of the plan
GOAL, RANGE_GOAL = 4.0, 0.8
GIB = 1 << 30


def measure(scope: Scope) -> list[Line]:
    ours, ranges, usual = [], [], []
    with Service(scope.folder) as service, Client(service.url) as client, server("usual", scope.folder) as port:
        key, size = heavy_engine(client, scope.folder)
        client.fetch(key, scope.folder / "plan")
        path = f"/v1/engines/{key}/plan"
        for _ in range(scope.rounds(3, 1)):
            ours.append(speed(service.port, path))
            ranges.append(speed(service.port, path, {"Range": "bytes=1-"}))
            usual.append(speed(port, "/plan"))
    how = f"{CLIENTS} clients in another process, a plan of {size / 2**20:.0f} MiB {EACH} times each, from the page cache; "
    how += "rounds alternate."
    whole, ranged, theirs = Spread.of(ours), Spread.of(ranges), Spread.of(usual)
    return [
        Line(
            what="download of a plan",
            unit="GiB/s",
            ours=whole,
            beside="FileResponse (64 KiB)",
            theirs=theirs,
            goal=f"at least {GOAL:g}x",
            met=whole.median / theirs.median >= GOAL,
            how=how,
        ),
        Line(
            what="the same with Range",
            unit="GiB/s",
            ours=ranged,
            beside="whole",
            theirs=whole,
            goal=f"at least {RANGE_GOAL}x",
            met=ranged.median / whole.median >= RANGE_GOAL,
            how=how,
        ),
    ]


def heavy_engine(client: Client, folder: Path) -> tuple[str, int]:
    model = client.upload(heavy(folder / "heavy.onnx", SIZE)).digest
    submitted = client.submit(Submit(model=model), wait_s=60)
    if submitted.build is None or submitted.build.engine is None:
        raise RuntimeError(f"the heavy model was not built: {submitted.build and submitted.build.failure}")
    return submitted.build.engine_key, submitted.build.engine.plan.size


def speed(port: int, path: str, headers: dict[str, str] | None = None, each: int = EACH) -> float:
    found = load("download", port=port, path=path, clients=CLIENTS, each=each, headers=headers)
    return float(found["bytes"] / found["seconds"] / GIB)

"""What a full index costs: 10,000 engines of a hundred models and 100,000 builds beside a hundred of each, on both databases."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg
from sqlalchemy import Table, insert, select

from app.db import builds
from app.db.session import Database
from app.db.tables import build_labels, engines, models
from app.db.tables import builds as build_table
from benchmarks.models import chain
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope, load
from benchmarks.service import Service
from tests.conftest import real_postgres
from trtforge.client import Client
from trtforge.contract.builds import Submit

FEW, MANY = (100, 100), (10_000, 100_000)  # engines, builds
GOAL = 2.0
ROUND_S = 1.0
BATCH = 5_000  # rows per insert
PER_MODEL = 100  # engines
RARE = 1000  # every so manyth build has the label that is looked for
QUEUE_LOOKS = 50


@dataclass(frozen=True)
class Filled:
    """A service over an index of some size."""

    service: Service
    database: Database
    model: str
    engine_key: str
    target_id: str


def measure(scope: Scope) -> list[Line]:
    lines = []
    with ExitStack() as stack:
        cluster = stack.enter_context(real_postgres())
        for kind, urls in (("SQLite", (None, None)), ("Postgres", (_create(cluster, "few"), _create(cluster, "many")))):
            with ExitStack() as pair:
                few, many = (
                    pair.enter_context(_filled(scope.folder / f"{kind}{size[0]}", url, size))
                    for url, size in zip(urls, (FEW, MANY), strict=True)
                )
                lines += _compared(kind, few, many, scope.rounds(3, 1))
    return lines


def _create(cluster: str, name: str) -> str:
    with closing(psycopg.connect(cluster, autocommit=True)) as admin:
        admin.execute(f"create database {name}")
    return cluster.replace("/postgres?", f"/{name}?")


@contextmanager
def _filled(folder: Path, url: str | None, size: tuple[int, int]) -> Iterator[Filled]:
    """Build one engine for real, stop, fill the index with rows like its own, and run the service over them."""
    folder.mkdir()
    settings = {"database_url": url} if url else {}
    with Service(folder, **settings) as service, Client(service.url) as client:
        model = client.upload(chain(folder / "chain.onnx", 3)).digest
        build = client.submit(Submit(model=model), wait_s=60).build
    if build is None or build.state != "succeeded":
        raise RuntimeError(f"the engine was not built: {build}")
    database = Database(url or f"sqlite:///{folder / 'data' / 'trtforge.db'}")
    _fill(database, *size)
    with database.read() as tx:
        target_id = tx.execute(select(build_table.c.target_id).limit(1)).scalar_one()
    with Service(folder, **settings) as service:
        yield Filled(service, database, model, build.engine_key, target_id)


def _fill(database: Database, engines_: int, builds_: int) -> None:
    with database.write() as tx:
        engine = tx.execute(select(engines)).mappings().one()
        build = tx.execute(select(build_table)).mappings().one()
        model = tx.execute(select(models)).mappings().one()
    began = datetime(2026, 1, 1, tzinfo=UTC)
    others = ({**model, "digest": _model(n, model["digest"])} for n in range(PER_MODEL, engines_, PER_MODEL))
    _insert(database, models, others)
    _insert(database, engines, (_engine(dict(engine), n, began) for n in range(engines_)))
    rows = [_build(dict(build), n, began) for n in range(builds_)]
    _insert(database, build_table, iter(rows))
    labels = [(row, *pair) for row in rows for pair in row["labels"].items()]
    names = ("build_id", "name", "value", "created_at")
    _insert(
        database, build_labels, (dict(zip(names, (r["id"], k, v, r["created_at"]), strict=True)) for r, k, v in labels)
    )


def _engine(row: dict[str, Any], number: int, began: datetime) -> dict[str, Any]:
    """Vary model, target and spec; all share the bytes of the one that was built."""
    target, spec = divmod(number % PER_MODEL, 10)
    return row | {
        "engine_key": f"sha256:{number:064x}",
        "model": _model(number, row["model"]),
        "target": row["target"] | {"builder_version": f"1.7.{target}"},
        "spec": row["spec"] | {"workspace_bytes": (1 + spec) << 24},
        "created_at": began + timedelta(seconds=number),
    }


def _model(number: int, first: str) -> str:
    return first if number < PER_MODEL else f"sha256:{number // PER_MODEL:064x}"


def _build(row: dict[str, Any], number: int, began: datetime) -> dict[str, Any]:
    at = began + timedelta(seconds=number)
    labels = {"team": "vision" if number % RARE == 0 else "speech"}
    ours = {"id": f"bld_{number:020d}", "engine_key": f"sha256:{number:064x}", "labels": labels, "created_at": at}
    return row | ours | {"started_at": at, "finished_at": datetime.now(UTC)}


def _insert(database: Database, table: Table, rows: Iterator[dict[str, Any]]) -> None:
    coming = list(rows)
    for first in range(0, len(coming), BATCH):
        with database.write() as tx:
            tx.execute(insert(table), coming[first : first + BATCH])


def _compared(kind: str, few: Filled, many: Filled, rounds: int) -> list[Line]:
    found: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for _ in range(rounds):
        for where, filled in enumerate((few, many)):
            for name, look in _looks(filled).items():
                found[name][where].append(look())
    lines = []
    for name, (small, large) in found.items():
        ours, theirs = Spread.of(large), Spread.of(small)
        met = ours.median <= GOAL * theirs.median
        how = (
            f"{kind}, over HTTP by one client after the other, but for the queue: {QUEUE_LOOKS} looks of the function."
        )
        lines.append(Line(f"{kind}: {name}", "ms", ours, "with a hundred", theirs, f"at most {GOAL:g}x", met, how))
    return lines


def _looks(filled: Filled) -> dict[str, Callable[[], float]]:
    """Return what is looked up, each as a call that gives milliseconds."""
    machine = {"builder": "tensorrt_rtx", "compute_capabilities": ["8.9"], "os": "linux", "arch": "x86_64"}
    want = json.dumps({"model": filled.model, "target": machine, "policy": "exact"})
    get = partial(_asked, filled.service.port)
    return {
        "list engines": lambda: get(f"/v1/engines?model={filled.model}"),
        "list builds": lambda: get("/v1/builds"),
        "list failed builds": lambda: get("/v1/builds?state=failed"),
        "list builds of a rare label": lambda: get("/v1/builds?label=team=vision&limit=1"),
        "find an engine": lambda: get(f"/v1/engines/{filled.engine_key}"),
        "resolve": lambda: get("/v1/engines/resolve", "POST", want),
        "pick from the queue": lambda: _picked(filled),
    }


def _asked(port: int, path: str, method: str = "GET", body: str = "") -> float:
    found = load("rate", port=port, path=path, connections=1, seconds=ROUND_S, method=method, body=body)
    if set(found["answers"]) != {"200"}:
        raise RuntimeError(f"{path} was answered {found['answers']}")
    return 1000 / float(found["per_second"])


def _picked(filled: Filled) -> float:
    began = perf_counter()
    for _ in range(QUEUE_LOOKS):
        with filled.database.read() as tx:
            builds.queue(tx, filled.target_id, 20)
    return (perf_counter() - began) / QUEUE_LOOKS * 1000

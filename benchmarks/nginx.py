"""Plans and manifests beside nginx with the same bytes: the service alone, and behind it by X-Accel-Redirect."""

import getpass
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from time import monotonic, sleep
from typing import Any

import httpx

from benchmarks.download import CLIENTS, SIZE, heavy_engine, speed
from benchmarks.lookup import CONNECTIONS, ROUND_S, per_second
from benchmarks.report import Line, Spread, percentile
from benchmarks.scope import ROOT, Scope, heard, start
from benchmarks.service import Service, free_port
from trtforge.client import Client

STATIC_GOAL, ACCEL_GOAL, OTHERS_GOAL = 0.85, 0.95, 1.3
PROBES = {"paths": ["/livez"], "every_s": 0.005, "seconds": 2.0}
WORKERS = 2
EACH = 8  # downloads of a client: a second or two


def measure(scope: Scope) -> list[Line]:
    """Return nothing, and say why, where there is no nginx."""
    if which("nginx") is None:
        print("  nginx is not installed (Debian: nginx-light), so nothing is measured beside it", file=sys.stderr)
        return []
    alone, behind = scope.folder / "alone", scope.folder / "behind"
    for folder in (alone, behind):
        folder.mkdir()
    with (
        Service(alone) as service,
        Service(behind, accel_prefix="/plans-internal/") as hidden,
        Client(service.url) as client,
        Client(hidden.url) as other,
        _nginx(scope.folder, hidden.port, behind / "data") as (front, static),
    ):
        key, _ = heavy_engine(client, alone)
        heavy_engine(other, behind)  # the same model and spec, hence the same key
        _lay_out(scope.folder / "static", service.url, key)
        ours: dict[str, Any] = {"port": service.port, "path": f"/v1/engines/{key}/plan"}
        accel: dict[str, Any] = {"port": front, "path": f"/v1/engines/{key}/plan"}
        plain: dict[str, Any] = {"port": static, "path": "/plan"}
        found: dict[str, list[float]] = defaultdict(list)
        for _ in range(scope.rounds(5, 2)):
            for name, where in (("ours", ours), ("accel", accel), ("static", plain)):
                found[name].append(speed(**where, each=EACH))
            for name, where in (("ours", ours), ("accel", accel)):
                found[f"{name} p99"].append(_others(**where))
            found["lookup"].append(per_second(service.port, f"/v1/engines/{key}"))
            found["static lookup"].append(per_second(static, "/manifest.json"))
    return _lines({name: Spread.of(values) for name, values in found.items()})


@contextmanager
def _nginx(folder: Path, behind: int, data: Path) -> Iterator[tuple[int, int]]:
    """Run nginx with deploy/nginx.conf before the service on port `behind`, and a folder of files; give both ports."""
    front, static = free_port(), free_port()
    shipped = (ROOT / "deploy" / "nginx.conf").read_text()
    site = shipped.replace("listen 8081", f"listen {front}").replace("127.0.0.1:8080", f"127.0.0.1:{behind}")
    site = site.replace("/var/lib/trtforge", str(data))
    files = f"server {{ listen {static}; root {folder}/static; sendfile on; tcp_nopush on; }}"
    http = f"access_log off; keepalive_requests 1000000; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; {files}\n{site}"
    (folder / "static").mkdir()
    (folder / "nginx.conf").write_text(
        f"user {getpass.getuser()}; daemon off; worker_processes {WORKERS}; pid {folder}/nginx.pid;\n"
        f"events {{ worker_connections 1024; }}\nhttp {{ {http} }}\n"
    )
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen(
            ["nginx", "-e", str(folder / "nginx.log"), "-p", str(folder), "-c", str(folder / "nginx.conf")],
            stderr=log,
        )
    try:
        _await(f"http://127.0.0.1:{static}/", process)
        yield front, static
    finally:
        process.terminate()
        process.wait()


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = monotonic() + 10
    while True:
        try:
            httpx.get(url)
            return
        except httpx.TransportError as error:
            if process.poll() is not None or monotonic() > end:
                raise RuntimeError("nginx does not start") from error
            sleep(0.05)


def _lay_out(folder: Path, url: str, key: str) -> None:
    for name, path in (("plan", f"/v1/engines/{key}/plan"), ("manifest.json", f"/v1/engines/{key}")):
        (folder / name).write_bytes(httpx.get(f"{url}{path}", timeout=60).raise_for_status().content)


def _others(port: int, path: str) -> float:
    """Return the p99 of /livez in milliseconds while plans are sent all the time."""
    asked: dict[str, Any] = {"port": port, "path": path, "clients": CLIENTS, "each": EACH}
    probes = start("load", "probe", json.dumps({"port": port, **PROBES}))
    while probes.poll() is None:
        heard(start("load", "download", json.dumps(asked)))
    found = heard(probes)["/livez"]
    return percentile([took for _, took in found], 0.99) * 1000


def _lines(found: dict[str, Spread]) -> list[Line]:
    static = found["static"]
    how = f"{CLIENTS} clients, a plan of {SIZE >> 20} MiB {EACH} times each; nginx with {WORKERS} workers; rounds alternate."

    def beside(
        what: str, unit: str, name: str, beside: str, theirs: str, goal: str, met: bool | None, how: str
    ) -> Line:
        return Line(what, unit, found[name], beside, found[theirs], goal, met, how)

    alone, accel = found["ours"].median / static.median, found["accel"].median / static.median
    others = found["ours p99"].median / found["accel p99"].median
    return [
        beside("download, service alone", "GiB/s", "ours", "nginx", "static", f"stretch {STATIC_GOAL}x", None, how),
        beside(
            "download, X-Accel-Redirect",
            "GiB/s",
            "accel",
            "nginx",
            "static",
            f"at least {ACCEL_GOAL}x",
            accel >= ACCEL_GOAL,
            f"{how} deploy/nginx.conf as it is; alone {alone:.2f}x.",
        ),
        beside(
            f"/livez while {CLIENTS} download, p99",
            "ms",
            "ours p99",
            "behind nginx",
            "accel p99",
            f"at most {OTHERS_GOAL}x",
            others <= OTHERS_GOAL,
            "A new connection every 5 ms.",
        ),
        beside(
            "lookup of an engine",
            "/s",
            "lookup",
            "nginx, the same JSON",
            "static lookup",
            "",
            None,
            f"{CONNECTIONS} kept connections, {ROUND_S:g} s a round.",
        ),
    ]

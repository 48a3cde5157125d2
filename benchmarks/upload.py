"""How fast a big model gets in, and what everyone else notices of it."""

import json
import subprocess
from pathlib import Path

from benchmarks.models import heavy
from benchmarks.report import Line, Spread, percentile
from benchmarks.scope import Scope, heard, load, server, start
from benchmarks.service import Service
from trtforge.client import Client
from trtforge.transfer import digest_of

SIZE = 256 << 20  # bytes
GOAL = 1.2
MIB = 1 << 20
PROBE = {"paths": ["/livez"], "every_s": 0.01}


def measure(scope: Scope) -> list[Line]:
    size = SIZE // 4 if scope.quick else SIZE
    path = heavy(scope.folder / "heavy.onnx", size)
    new, ours, written, hashed = [], [], [], []
    idle: list[float] = []
    busy: list[float] = []
    with Service(scope.folder) as service, Client(service.url), server("usual", scope.folder) as port:
        for number in range(scope.rounds(3, 1)):
            _renewed(path, number)
            idle += _probed(heard(_probing(service.port, 1.0)))
            probing = _probing(service.port, 3.0)
            model = f"/v1/models/{digest_of(path)}"
            new.append(_speed(service.port, model, path))
            ours.append(_speed(service.port, model, path))
            busy += _probed(heard(probing))
            written.append(_speed(port, "/written", path))
            hashed.append(_speed(port, "/hashed", path))
    how = f"PUT of a model of {size // MIB} MiB that does not compress, until the answer. A new model is also flushed to the "
    how += "disk and read by a child; sent again it is streamed to a file and hashed, as beside it. Rounds alternate."
    return [
        _line("upload of a model that is here", ours, "hashing inline on the loop", hashed, GOAL, how),
        _line("upload of a model that is here", ours, "writing only", written, None, how),
        _line("upload of a new model", new, "writing only", written, None, how),
        Line(
            what="/livez p50 during an upload",
            unit="ms",
            ours=_p50(busy),
            beside="idle",
            theirs=_p50(idle),
            goal="unmoved (within 2x)",
            met=_p50(busy).median <= 2 * _p50(idle).median,
            how="p50 (p50..p99); a new connection every 10 ms from another process.",
        ),
    ]


def _line(what: str, ours: list[float], beside: str, theirs: list[float], goal: float | None, how: str) -> Line:
    ratio = Spread.of(ours).median / Spread.of(theirs).median
    return Line(
        what=what,
        unit="MiB/s",
        ours=Spread.of(ours),
        beside=beside,
        theirs=Spread.of(theirs),
        goal=f"at least {goal}x" if goal else "",
        met=ratio >= goal if goal else None,
        how=how,
    )


def _renewed(path: Path, number: int) -> None:
    """Append a producer version: another digest, the same model (the last of a repeated protobuf field counts)."""
    words = f"round {number}".encode()
    with path.open("ab") as file:
        file.write(b"\x1a" + bytes([len(words)]) + words)


def _probing(port: int, seconds: float) -> "subprocess.Popen[bytes]":
    return start("load", "probe", json.dumps({**PROBE, "port": port, "seconds": seconds}))


def _probed(found: dict[str, list[list[float]]]) -> list[float]:
    return [took for _, took in found["/livez"]]


def _p50(took: list[float]) -> Spread:
    middle = percentile(took, 0.5) * 1000
    return Spread(middle, middle, percentile(took, 0.99) * 1000, len(took))


def _speed(port: int, path: str, file: Path) -> float:
    found = load("upload", port=port, path=path, file=str(file))
    return float(found["bytes"] / found["seconds"] / MIB)

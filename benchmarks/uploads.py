"""Whether the memory of the service stays as it is over many uploads, each of other bytes."""

import hashlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil

from benchmarks.models import heavy
from benchmarks.report import Line, Spread
from benchmarks.scope import Scope
from benchmarks.service import Service

COUNT, SIZE = 1000, 10 * 10**6  # uploads, bytes of each
WARM = 50  # uploads before memory counts: buffers, threads and connections are there then
CLIENTS = 4
BOUND = 30.0  # MB that memory may move, up or down
MB = 10**6


def measure(scope: Scope) -> list[Line]:
    count = COUNT // 10 if scope.quick else COUNT
    frame = heavy(scope.folder / "frame.onnx", SIZE).read_bytes()
    with (
        Service(scope.folder, log_level="warning") as service,
        httpx.Client(base_url=service.url, timeout=300, verify=False) as http,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        process = psutil.Process(service.pid)
        models = scope.folder / "data" / "store" / "models"

        def send(number: int) -> float:
            content = _other(frame, number)
            digest = hashlib.sha256(content).hexdigest()
            answer = http.put(f"/v1/models/sha256:{digest}", content=_pieces(content))
            if answer.status_code != 201:
                raise RuntimeError(f"upload {number}: {answer.status_code} {answer.text[:300]}")
            for kept in models.rglob(digest):  # ten gigabytes would stay otherwise
                kept.unlink()
            return process.memory_info().rss / MB

        list(pool.map(send, range(WARM)))
        before = process.memory_info().rss / MB
        during = list(pool.map(send, range(WARM, WARM + count)))
    moved = max(abs(rss - before) for rss in during)
    return [
        Line(
            what=f"memory of the service over {count} uploads of {SIZE // MB} MB",
            unit="MB",
            ours=Spread.of(during),
            beside=f"after {WARM} uploads",
            theirs=Spread.of([before]),
            goal=f"within {BOUND:g} MB",
            met=moved <= BOUND,
            how=f"Resident bytes of the API process after each upload of a model of its own, {CLIENTS} at a time, streamed, "
            f"inspected and kept; it moved by {moved:.1f} MB at most and ended at {during[-1]:.1f} MB.",
        )
    ]


def _other(frame: bytes, number: int) -> bytes:
    """The same model with other weights, as long: random bytes over the middle of its one tensor."""
    middle = random.Random(number).randbytes(len(frame) // 2)
    start = len(frame) // 4
    return frame[:start] + middle + frame[start + len(middle) :]


def _pieces(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), 1 << 18):
        yield content[at : at + (1 << 18)]

"""How long a preflight takes over HTTP: every real topology that ships in packages, with the template of profiles."""

from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from benchmarks.report import Line, Spread
from benchmarks.scope import Scope
from benchmarks.service import Service
from trtforge.client import Client
from trtforge.contract.models import PreflightAsk
from trtforge.contract.spec import BuildSpec

GOAL_S = 3.0
PLACES = {
    "onnx": "backend/test/data/light/*.onnx",
    "rapidocr_onnxruntime": "models/*.onnx",
    "silero_vad": "data/*.onnx",
}


def measure(scope: Scope) -> list[Line]:
    took: dict[str, list[float]] = {}
    with Service(scope.folder) as service, Client(service.url) as client:
        for path in _models():
            digest = client.upload(path).digest
            ask = PreflightAsk(spec=BuildSpec(profiles=client.preflight(digest).profile_template))
            times = took.setdefault(path.stem, [])
            for _ in range(scope.rounds(3, 1)):
                began = perf_counter()
                client.preflight(digest, ask)
                times.append(perf_counter() - began)
    each = {name: Spread.of(times) for name, times in took.items()}
    slowest = max(each, key=lambda name: each[name].median)
    shown = ", ".join(f"{name} {spread.median:.2f}" for name, spread in each.items())
    return [
        Line(
            what=f"preflight of {slowest}, the slowest of {len(each)} real models",
            unit="s",
            ours=each[slowest],
            beside="",
            theirs=None,
            goal=f"every one under {GOAL_S:g} s",
            met=max(spread.median for spread in each.values()) < GOAL_S,
            how=f"POST until the answer, profiles given, nothing else asked of the service. Medians in seconds: {shown}.",
        )
    ]


def _models() -> list[Path]:
    found: list[Path] = []
    for name, places in PLACES.items():
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise RuntimeError(f"Package {name} is not installed; `make check` brings it.")
        found += sorted(Path(next(iter(spec.submodule_search_locations))).glob(places))
    return found

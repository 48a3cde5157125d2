"""What this service does on a machine with a GPU: `PYTHONPATH=.:client python -m benchmarks.gpu` prints it as JSON.

It needs Python and the locked packages, no installed distribution of ours, no make and no network, and takes a few
minutes. It records what is there: the fingerprint, a worker on the GPU, a build with its figures, two services that
share the GPU, and what becomes of stripped plans; and how streams and CUDA graphs run beside one another. It ends with 1 when the service itself did wrong.
"""

import asyncio
import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from traceback import format_exc
from typing import Any

import httpx

from app.worker.devices import NoGpus, Watch
from benchmarks.models import chain
from benchmarks.refit import FLAGS
from benchmarks.service import Service, light_model
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.events import Heartbeat
from trtforge.contract.spec import BuildSpec
from trtforge.fingerprint import fingerprint

Record = dict[str, Any]

SERVE = ("-c", "import typer; from app.cli import serve; typer.run(serve)")  # without the installed entry point
ON_GPU = {"builder": "tensorrt_rtx", "device": "gpu", "heartbeat_s": "0.5", "measure_contexts": "4"}
LONG = 1500  # Relus: seconds on any machine


def main() -> int:
    record: Record = {"python": platform.python_version(), "cpus": os.cpu_count()}
    wrong = []
    with TemporaryDirectory(prefix="trtforge-gpu-", ignore_cleanup_errors=True) as folder:
        for name, part in PARTS:
            began = monotonic()
            place = Path(folder, name)
            place.mkdir()
            try:
                record[name] = part(place)
            except Exception:
                record[name] = {"error": format_exc()}
                wrong.append(name)
            print(f"{name}: {monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if record["two_services"].get("overlap") is not False:
        wrong.append("two_services")
    record["wrong"] = sorted(set(wrong))
    print(json.dumps(record, indent=2))
    return 1 if wrong else 0


def lanes(_: Path) -> Record:
    """Return what streams and CUDA graphs do here, measured as engines are, with copies in the place of inferences.

    In a process of its own, as the service does it: CUDA stays in whoever has once used it.
    """
    ran = subprocess.run([sys.executable, "-m", "benchmarks.lanes", "0.5"], capture_output=True, text=True, timeout=120)
    return {"ended": ran.returncode, "stderr": ran.stderr[-1000:]} | (json.loads(ran.stdout) if ran.stdout else {})


def nvml(_: Path) -> Record:
    """Return what the service and the client are told, and what is going on there."""

    async def ask() -> Record:
        watch = Watch()
        try:
            gpus = await watch.gpus()
            await watch.next_sample()
            samples = [watch.sample(gpu) for gpu in gpus]
            return {"gpus": [asdict(gpu) for gpu in gpus], "samples": [asdict(s) for s in samples if s]}
        except NoGpus as error:
            return {"gpus": [], "reason": str(error)}
        finally:
            await watch.stop()

    return asyncio.run(ask()) | {"client": fingerprint().model_dump(mode="json", exclude_none=True)}


def service(folder: Path) -> Record:
    """Return what a worker on the GPU says of itself, and a build of ResNet-50 there."""
    with Service(folder, program=SERVE, **ON_GPU) as ours, Client(ours.url) as client:
        ready = httpx.get(f"{ours.url}/readyz?verbose").json()
        targets = [one.model_dump(mode="json") for one in client.targets().items]
        return {"machine": ready["machine"], "targets": targets, "build": _build(client, light_model("resnet50"))}


def _build(client: Client, path: Path) -> Record:
    model = client.upload(path)
    began = monotonic()
    submitted = client.submit(Submit(model=model.digest, spec=BuildSpec()))
    beats = [e for _, e in client.follow(submitted.request_id) if isinstance(e, Heartbeat)]
    seconds = monotonic() - began
    served = client.wait(submitted.request_id).served
    assert served, "the build failed"
    manifest = client.manifest(served.engine_key)
    return {
        "model": path.name,
        "seconds": round(seconds, 3),
        "plan_bytes": manifest.plan.size,
        "stages": manifest.timings.stages,
        "device": manifest.device.model_dump(mode="json") if manifest.device else None,
        "warnings": manifest.warnings,
        "verified": manifest.verified,
        "loaded": manifest.loaded.model_dump(mode="json", exclude={"inspector", "layers"}) if manifest.loaded else None,
        "gpu_utilization": max((b.gpu_utilization for b in beats if b.gpu_utilization is not None), default=None),
        "gpu_memory_bytes": max((b.gpu_memory_bytes for b in beats if b.gpu_memory_bytes is not None), default=None),
        "activity": sorted({str(b.activity) for b in beats}),
    }


def two_services(folder: Path) -> Record:
    """Return when each of two services on one GPU built: their lock keeps the builds apart."""
    both = ON_GPU | {"lock_dir": str(folder / "locks")}
    places = [folder / "one", folder / "two"]
    for place in places:
        place.mkdir()
    with (
        Service(places[0], program=SERVE, **both) as one,
        Service(places[1], program=SERVE, **both) as two,
        ThreadPoolExecutor(2) as pool,
    ):
        spans = list(pool.map(_span, (one.url, two.url), (LONG, LONG + 1)))
    first, second = sorted(spans, key=lambda span: str(span["started_at"]))
    return {"builds": [first, second], "overlap": bool(second["started_at"] < first["finished_at"])}


def _span(url: str, length: int) -> Record:
    with Client(url) as client, TemporaryDirectory() as folder:
        path = chain(Path(folder, "chain.onnx"), length)
        submitted = client.submit(Submit(model=client.upload(path).digest, spec=BuildSpec()))
        assert submitted.build, submitted
        waits = []
        for _, event in client.follow(submitted.request_id):
            if event.type == "waiting":
                waits.append(event.waiting_for)
        build = client.build(submitted.build.id)
        assert build.state == "succeeded", build.failure
        named = build.model_dump(mode="json", include={"started_at", "finished_at"})
        return named | {"waited_for": waits}


def refit(_: Path) -> Record:
    """Return how far plain, refittable and stripped plans come, each in a process of its own."""
    model = str(light_model("squeezenet"))
    found: Record = {}
    for flag in FLAGS:
        command = [sys.executable, "-m", "benchmarks.refit", flag, model]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired:
            found[flag] = {"ended": "timeout"}
            continue
        steps = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        found[flag] = {"ended": ran.returncode, "steps": steps, "stderr": ran.stderr[-1000:]}
    return found


PARTS = (("nvml", nvml), ("lanes", lanes), ("service", service), ("two_services", two_services), ("refit", refit))

if __name__ == "__main__":
    sys.exit(main())

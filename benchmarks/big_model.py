"""A model of more than 2 GiB, its weights in a file beside it: uploaded with a cut on the way, preflighted, built."""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import httpx
import onnx
import psutil
from onnx import TensorProto, helper

from benchmarks.report import Line, Spread
from benchmarks.scope import Scope
from benchmarks.service import Service
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.transfer import digest_of

SIDE = 8192  # of a square of float32: 256 MiB
LAYERS = 9
PIECE = 1 << 20
GIB, MB = 1 << 30, 10**6


def measure(scope: Scope) -> list[Line]:
    path, weights = _model(scope.folder, 1 if scope.quick else LAYERS)
    size = weights.stat().st_size
    with Service(scope.folder) as service, Client(service.url, timeout_s=300) as client:
        process = psutil.Process(service.pid)
        before = process.memory_info().rss
        kept = _cut(service.url, weights, size // 2)
        began = perf_counter()
        sent: list[int] = []
        digest = client.upload(path, lambda done, _: sent.append(done)).digest
        uploaded = perf_counter() - began
        first = min(done for done in sent if done > path.stat().st_size)
        began = perf_counter()
        if not (said := client.preflight(digest)).ok:
            raise RuntimeError(f"preflight says {said.problems}")
        looked = perf_counter() - began
        began = perf_counter()
        submitted = client.submit(Submit(model=digest))
        if submitted.build is None:
            raise RuntimeError(f"disposition {submitted.disposition}")
        *_, last = client.events(submitted.build.id)
        built = perf_counter() - began
        if last.type != "succeeded":
            raise RuntimeError(f"the build ended with {last}")
        grown = (process.memory_info().rss - before) / MB
    how = f"{size / GIB:.2f} GiB of weights in one file; a first client was cut after {kept / GIB:.2f} GiB, the second one's "
    how += f"first piece ended at {first / GIB:.2f} GiB. The service's memory grew by {grown:.0f} MB in all."
    return [
        _line(f"upload of the rest of a model of {size / GIB:.2f} GiB", uploaded, how),
        _line(f"preflight of a model of {size / GIB:.2f} GiB", looked, how),
        _line(f"build of a model of {size / GIB:.2f} GiB", built, how),
    ]


def _line(what: str, seconds: float, how: str) -> Line:
    return Line(what, "s", Spread.of([seconds]), "", None, "", None, how)


def _model(folder: Path, layers: int) -> tuple[Path, Path]:
    """Write a row of MatMuls; weights are 0 but for a first piece of each, so the file takes hardly any disk."""
    weights, size = folder / "weights.bin", SIDE * SIDE * 4
    with weights.open("wb") as file:
        for layer in range(layers):
            file.seek(layer * size)
            file.write(bytes([layer + 1, 0, 0, 60]) * 1024)
        file.truncate(layers * size)
    tensors = []
    for layer in range(layers):
        tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", weights.name), ("offset", layer * size), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    nodes = [helper.make_node("MatMul", [f"t{n}", f"w{n}"], [f"t{n + 1}"]) for n in range(layers)]
    ends = [helper.make_tensor_value_info(f"t{n}", TensorProto.FLOAT, [1, SIDE]) for n in (0, layers)]
    graph = helper.make_graph(nodes, "big", ends[:1], ends[1:], tensors)
    path = folder / "big.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )
    onnx.checker.check_model(str(path))
    return path, weights


def _cut(url: str, weights: Path, after: int) -> int:
    """Begin to send the weights, break off, and return how much the service has of them."""
    address = f"/v1/files/{digest_of(weights)}"
    with httpx.Client(base_url=url, timeout=300, verify=False) as http:
        try:
            headers = {"Content-Length": str(weights.stat().st_size)}
            http.put(address, content=_breaking(weights, after), headers=headers)
        except ConnectionAbortedError:
            pass
        else:
            raise RuntimeError("the upload was not cut")
    with httpx.Client(base_url=url, timeout=300, verify=False) as http:
        for _ in range(100):
            if have := int(http.head(address).headers.get("Upload-Offset", "0")):
                return have
    raise RuntimeError("nothing was kept of what was sent before the cut")


def _breaking(path: Path, after: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while file.tell() < after:
            yield file.read(PIECE)
    raise ConnectionAbortedError

"""Answers of a service, as they look on the wire."""

import hashlib

from tests.client.scripted import Scripted
from trtforge.client import Client
from trtforge.contract.builds import Submit

AT = "2030-01-01T00:00:00Z"
DIGEST = "sha256:" + "0" * 64
FAILURE = {"code": "builder_error", "message": "m", "remedy": "r", "stage": None, "retryable": False}
TARGET = {
    "builder": "tensorrt_rtx",
    "builder_version": "1",
    "compute_capabilities": ["8.9"],
    "os": "linux",
    "arch": "x",
}
ASK = Submit(model=DIGEST)
SUBMITTED = {"disposition": "cached", "request_id": "req_1", "build": None, "engine": None}


def client(server: Scripted, patience_s: float = 5.0) -> Client:
    return Client(server.url, token="secret-token-of-a-test", timeout_s=5, patience_s=patience_s)


def queued(seq: int) -> dict[str, object]:
    return {"type": "queued", "seq": seq, "at": AT, "attempt": 0}


def failed(seq: int) -> dict[str, object]:
    return {"type": "failed", "seq": seq, "at": AT, "attempt": 1, "failure": FAILURE}


PLAN = bytes(range(256)) * 40


def manifest(plan: bytes = PLAN) -> dict[str, object]:
    spec = {"profiles": [], "precision": "as_is", "optimization_level": 3, "workspace_bytes": 1}
    return {
        "schema": 1, "engine_key": DIGEST, "key_schema": 1, "model": {"digest": DIGEST, "files": []}, "target": TARGET,
        "spec": {"requested": {}, "effective": spec}, "plan": {"digest": digest(plan), "size": len(plan)},
        "builder": {"name": "b", "version": "1", "onnx_parser": "1"}, "tools": {},
        "timings": {"stages": {}, "phases": []},
        "memory": {"weights_bytes": None, "activation_bytes": None, "scratch_bytes": None},
        "precision": {"requested": "as_is", "achieved": {}}, "warnings": [], "verified": "bytes",
        "build": {"id": "b", "attempts": 1, "service_version": "0"}, "created_at": AT,
    }  # fmt: skip


def digest(plan: bytes) -> str:
    return "sha256:" + hashlib.sha256(plan).hexdigest()


MODEL = {
    "digest": DIGEST, "size": 3, "graph": "model.onnx", "files": [], "created_at": AT, "opset": {"": 17},
    "ir_version": 8, "producer": "p", "node_count": 1, "parameter_bytes": 0, "operators": {}, "inputs": [],
    "outputs": [],
}  # fmt: skip

"""Measurements and the demonstration: run against the real service, through its public API."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

NAMES = (
    "overhead",
    "probes",
    "monitor",
    "cancel",
    "child_start",
    "fanout",
    "lookup",
    "submit",
    "download",
    "nginx",
    "upload",
    "estimate",
    "index",
    "preflight",
    "big_model",
    "uploads",
)


def _of(name: str) -> Callable[[], Any]:
    return lambda: import_module(f"benchmarks.{name}").measure


MEASUREMENTS = {name: _of(name) for name in NAMES}  # loaded when called: the demonstration needs none of them

"""What a measurement may use, and how it starts processes beside itself."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchmarks.service import free_port

ROOT = Path(__file__).resolve().parents[1]
START_S = 30.0
PATIENCE_S = 300.0  # longer than any single piece of load


@dataclass(frozen=True)
class Scope:
    """An empty folder of one's own, and how much time there is."""

    folder: Path
    quick: bool

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def start(module: str, *words: str) -> "subprocess.Popen[bytes]":
    """Start `python -m benchmarks.<module> <words>` in a process of its own; it speaks on its stdout."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT, env=os.environ.copy())


def heard(process: "subprocess.Popen[bytes]") -> Any:
    """Return the JSON a process says once it has ended. Raises `RuntimeError` when it failed."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, process.args[2:4]))} ended with {process.returncode}")  # type: ignore[index]
    return json.loads(said)


@contextmanager
def server(module: str, folder: Path) -> Iterator[int]:
    """Run `python -m benchmarks.<module> PORT FOLDER` and give its port once it answers."""
    port = free_port()
    process = start(module, str(port), str(folder))
    try:
        end = monotonic() + START_S
        while not _listens(port):
            if process.poll() is not None or monotonic() > end:
                raise RuntimeError(f"benchmarks.{module} does not start")
            sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.communicate()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def load(kind: str, **asked: Any) -> Any:
    """Put load on a server from another process, and return what it measured."""
    return heard(start("load", kind, json.dumps(asked)))

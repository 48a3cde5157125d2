"""A real service of one's own: `trtforge serve` on a free port, in a folder that goes away with it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from trtforge.client import Client
from trtforge.errors import TrtforgeError

START_S = 60.0  # the builder is loaded once in a child before the service is ready
STOP_S = 30.0


class Service:
    """Runs while the context is open. `stop` is part of what is shown, so it is also a method."""

    def __init__(self, folder: Path, program: Sequence[str] = ("-m", "trtforge", "serve"), **settings: str) -> None:
        """`program` is what Python is given to run."""
        self._program = program
        self._folder, self._settings = folder, settings
        self._log = folder / "service.log"
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        command = [sys.executable, *self._program, "--host", "127.0.0.1"]
        command += ["--port", str(self._port), "--data-dir", str(self._folder / "data")]
        # Locks of its own: another service on this machine must not be waited for.
        ours = {"TRTFORGE_LOCK_DIR": str(self._folder / "locks")}
        ours |= {f"TRTFORGE_{name.upper()}": value for name, value in self._settings.items()}
        env = {name: value for name, value in os.environ.items() if not name.startswith("TRTFORGE_")} | ours
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        self._await_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.stop()

    def _await_ready(self) -> None:
        end = monotonic() + START_S
        with Client(self.url) as client:
            while True:
                try:
                    return client.readiness()
                except TrtforgeError as error:
                    if self._process.poll() is not None or monotonic() > end:
                        raise RuntimeError(f"The service did not become ready (exit code {self.stop()}).") from error
                sleep(0.05)

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> int:
        """Send SIGTERM and return the exit code; a service that does not end in `STOP_S` is killed (code -9)."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def log_tail(self) -> str:
        """Return the last lines of the log, each cut in the middle when it is long."""
        if not self._log.exists():
            return ""
        lines = self._log.read_text(errors="replace").splitlines()[-20:]
        return "\n".join(line if len(line) <= 1000 else f"{line[:300]} … {line[-700:]}" for line in lines)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def light_model(name: str) -> Path:
    """Return one of the real topologies that ship in package onnx, found without importing it."""
    spec = find_spec("onnx")
    if spec is None or spec.origin is None:
        raise RuntimeError("Package onnx is not installed; `make install` brings it.")
    return Path(spec.origin).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"

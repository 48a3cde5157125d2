"""Sixteen downloads through lines that break at random, while their engine is replaced: every file that comes is whole."""

import os
import random
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.api.seeded import ask, parts_of, seed, seeded, sha256
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge.client import Client
from trtforge.errors import PlanMismatch, ServiceError

SIZE = 6 << 20
CLIENTS = 16
REPLACED = 3


class Breaking:
    """A line to a server: each connection dies after some bytes, most before a whole plan went through."""

    def __init__(self, port: int, seed: int) -> None:
        self._port, self._random = port, random.Random(seed)
        self.broken = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                left = self._random.randrange(SIZE // 4, 2 * SIZE)
                threading.Thread(target=self._pass, args=(near, far, 1 << 40), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, left), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, left: int) -> None:
        with suppress(OSError):
            while left > 0 and (got := source.recv(min(left, 1 << 16))):
                sink.sendall(got)
                left -= len(got)
        self.broken += left == 0
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def test_every_file_that_comes_through_is_whole(tmp_path: Path):
    server, [first] = seeded(tmp_path / "data", [(MODEL, SPEC, TARGET, os.urandom(SIZE))])
    server.start()
    key, stop = first.engine_key, threading.Event()

    def fetch(number: int, url: str) -> set[str]:
        """Fetch until the engine is replaced no more, and once again; return the digests of what came."""
        seen, goal = set(), tmp_path / f"{number}.plan"
        last = False
        while not last:
            last = stop.is_set()
            with Client(url, timeout_s=20, patience_s=20) as client:
                try:
                    manifest = client.fetch(key, goal)
                except (PlanMismatch, ServiceError):  # it was replaced, or is not there just now
                    last = False
                    continue
            assert sha256(goal.read_bytes()) == manifest.plan.digest
            seen.add(manifest.plan.digest)
        return seen

    parts = parts_of(tmp_path / "data")
    try:
        with Breaking(server.port, seed=5) as line, ThreadPoolExecutor(CLIENTS) as pool:
            coming = [pool.submit(fetch, number, line.url) for number in range(CLIENTS)]
            for _ in range(REPLACED):
                stop.wait(1.0)
                assert ask(server, "DELETE", f"/v1/engines/{key}").status_code == 204
                [newest] = seed(parts, [(MODEL, SPEC, TARGET, os.urandom(SIZE))])
            stop.set()
            seen = [one.result(timeout=120) for one in coming]
        assert all(newest.plan.digest in digests for digests in seen)
        assert line.broken > CLIENTS
        assert not list(tmp_path.glob(".*.part"))
    finally:
        parts.store.close()
        parts.database.close()
        server.stop()
        shutil.rmtree(tmp_path / "data")

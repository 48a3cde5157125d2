"""Downloads that are cut and resumed while engines are collected, deleted and built anew with other bytes under their keys."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx

from app.builds.gc import collect
from app.builds.parts import Parts
from app.builds.removal import remove
from app.errors import Refused
from tests.api.seeded import parts_of, sha256
from tests.builds.stocked import stock_engine, stock_model
from tests.conftest import Server

CLIENTS, PLANS = 16, 4
ENDS = {404, 410}  # gone, or gone between the look at its row and at its bytes


class Replacing:
    """Deletes one engine after the other and publishes it again with other bytes, and collects in between."""

    def __init__(self, parts: Parts, size: int) -> None:
        self._parts, self._model, self._size = parts, stock_model(parts), size
        self.made: set[str] = set()
        self.keys = [self._publish(number) for number in range(PLANS)]
        self.rounds = 0

    def _publish(self, number: int) -> str:
        plan = random.randbytes(self._size)
        self.made.add(sha256(plan))
        return stock_engine(self._parts, self._model, number, plan).engine_key

    def go_on(self, done: threading.Event) -> None:
        while not done.is_set() or self.rounds < 3:
            for number, key in enumerate(self.keys):
                remove(self._parts, key)
                self._publish(number)
            with suppress(Refused):  # gc_running: the service does it
                collect(self._parts, dry_run=False)
            self.rounds += 1


def download(url: str, key: str, size: int, seed: int) -> str | None:
    """Fetch a plan in pieces, each cut at random and gone on with; return the digest of its bytes, None: it went."""
    cuts, have, tag = random.Random(seed), bytearray(), ""
    while True:
        asked = {"Range": f"bytes={len(have)}-", "If-Range": tag} if have else {}
        with httpx.stream("GET", f"{url}/v1/engines/{key}/plan", headers=asked, timeout=60) as answer:
            if answer.status_code in ENDS:
                assert answer.read()
                assert answer.json()["code"] in ("not_found", "engine_corrupt")
                return None
            assert answer.status_code in (200, 206), answer.status_code
            if answer.status_code == 200:
                have.clear()  # it is another plan by now: from the beginning
            tag = answer.headers["ETag"]
            enough = cuts.randrange(1, size)
            got = 0
            for piece in answer.iter_raw(1 << 16):
                have += piece
                if (got := got + len(piece)) >= enough:
                    break
        if len(have) == size:
            digest = sha256(bytes(have))
            assert tag == f'"{digest}"', "a mixture"
            return digest


def replaced(folder: Path, each: int, size: int) -> dict[str, int]:
    """Let 16 clients download `each` plans of `size` bytes while all are replaced; return the figures.

    Raises `AssertionError` when one of them is a mixture, or what is served at rest is not whole.
    """
    server = Server(folder / "data", gc_interval_s="1").start()
    parts = parts_of(folder / "data")
    replacing, done = Replacing(parts, size), threading.Event()
    try:
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            going_on = pool.submit(replacing.go_on, done)
            asked = [(replacing.keys[seed % PLANS], size, seed) for seed in range(CLIENTS * each)]
            try:
                fetched = list(pool.map(lambda one: download(server.url, *one), asked))
            finally:
                done.set()
            going_on.result()
        whole = [digest for digest in fetched if digest]
        assert whole, "not one download came to its end"
        assert set(whole) <= replacing.made, "bytes that were never published"
        for number, key in enumerate(replacing.keys):  # at rest every one is whole
            assert download(server.url, key, size, number) in replacing.made
    finally:
        server.stop()
        parts.store.close()
        parts.database.close()
    return {
        "downloads whole": len(whole),
        "of bytes": len(whole) * size,
        "downloads of an engine gone": len(fetched) - len(whole),
        "rounds of replacing": replacing.rounds,
    }

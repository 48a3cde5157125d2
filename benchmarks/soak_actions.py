"""What the clients of a soak do, and what they were promised."""

import hashlib
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from benchmarks.soak_models import Wish, Wishes
from tests.conftest import Server
from tests.system.soundness import children

AWAY = 60.0  # seconds the service may be away between a kill and its return
PAUSE = 0.3  # seconds between the actions of one client, at most
WELL = {200, 201, 202, 204, 206}
REGRET = 4.0  # seconds until an order is taken back, at most, once it runs
RUNS_WITHIN, POLL = 15.0, 0.2  # seconds to wait until it runs, and between two looks
FIRST = 10  # priority over everybody else
CONFLICTS = {"already_ended", "publishing", "build_shared", "not_found", "unavailable", "too_many"}


@dataclass
class Ledger:
    """What was answered, and what was done; from several threads, so only by append and by whole numbers of one."""

    requests: list[str] = field(default_factory=list)  # ids that a 2xx gave
    cancels: list[str] = field(default_factory=list)  # builds whose DELETE was answered 202
    withdrawals: list[str] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)  # bytes
    cuts: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)  # events read
    builders_killed: int = 0
    servers_killed: int = 0
    servers_stopped: int = 0


class Actor(threading.Thread):
    """One client: does one thing after the other until it is over. `error`: what it saw and should not have."""

    def __init__(
        self, server: Server, ledger: Ledger, wishes: Wishes, chance: random.Random, over: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._server, self._ledger, self._wishes, self._chance, self._over = server, ledger, wishes, chance, over
        self._http = httpx.Client(base_url=server.url, timeout=30)
        self._mine: list[dict[str, Any]] = []  # answers to submits, newest last
        self.error: BaseException | None = None

    def run(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (8, self._submit),
            (2, self._cancel),
            (3, self._regret),
            (2, self._withdraw),
            (3, self._follow),
            (3, self._fetch),
            (1, self._look),
        ]
        weights, acts = [w for w, _ in actions], [a for _, a in actions]
        try:
            while not self._over.wait(self._chance.random() * PAUSE):
                self._chance.choices(acts, weights)[0]()
        except BaseException as error:
            self.error = error

    def _ask(self, method: str, path: str, **asked: Any) -> httpx.Response:
        """Ask until the service is there to answer; it may refuse for the reasons it has, but never fail."""
        end = time.monotonic() + AWAY
        while True:
            try:
                answer = self._http.request(method, path, **asked)
            except httpx.TransportError:
                assert time.monotonic() < end, "the service stays away"
                time.sleep(0.2)
                continue
            assert answer.status_code in WELL or answer.json()["code"] in CONFLICTS, f"{method} {path}: {answer.text}"
            if answer.status_code not in (429, 503):
                return answer
            assert "retry-after" in answer.headers, answer.text
            assert time.monotonic() < end, answer.text
            time.sleep(0.2)

    def _submit(self) -> None:
        self._order(self._wishes.next())

    def _regret(self) -> None:
        """Order something long, before everybody else; cancel it while it runs, or after a while wherever it is."""
        submitted = self._order(self._wishes.long(), priority=FIRST)
        end = time.monotonic() + RUNS_WITHIN
        while self._ask("GET", f"/v1/builds/{submitted['build']['id']}").json()["state"] == "queued":
            if self._over.wait(POLL) or time.monotonic() > end:
                break
        self._over.wait(self._chance.random() * REGRET)
        if self._ask("DELETE", f"/v1/builds/{submitted['build']['id']}").status_code == 202:
            self._ledger.cancels.append(submitted["build"]["id"])

    def _order(self, wish: Wish, priority: int = 0) -> dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(wish.content).hexdigest()
        self._ask("PUT", f"/v1/models/{digest}", content=wish.content)
        key = f"{self._chance.getrandbits(64):x}"
        body = json.dumps({"model": digest, "spec": wish.spec, "options": {"retry": True, "priority": priority}})
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        answer = self._ask("POST", "/v1/builds", content=body, headers=headers)
        assert answer.status_code in (200, 201), answer.text
        submitted: dict[str, Any] = answer.json()
        self._ledger.requests.append(submitted["request_id"])
        self._mine.append(submitted)
        return submitted

    def _any_build(self) -> str | None:
        built = [s["build"]["id"] for s in self._mine[-3:] if s["build"]]
        return self._chance.choice(built) if built else None

    def _cancel(self) -> None:
        if build := self._any_build():
            params = {"force": "true"} if self._chance.random() < 0.5 else {}
            if self._ask("DELETE", f"/v1/builds/{build}", params=params).status_code == 202:
                self._ledger.cancels.append(build)

    def _withdraw(self) -> None:
        if self._mine:
            request = self._chance.choice(self._mine[-10:])["request_id"]
            if self._ask("DELETE", f"/v1/requests/{request}").status_code == 204:
                self._ledger.withdrawals.append(request)

    def _follow(self) -> None:
        """Read some events of a build and leave, with the stream open or at its end."""
        if not (build := self._any_build()):
            return
        left, seen, seq = self._chance.randrange(1, 40), 0, 0
        try:
            with self._http.stream(
                "GET", f"/v1/builds/{build}/events", headers={"Accept": "application/x-ndjson"}, timeout=10
            ) as answer:
                for line in answer.iter_lines():
                    event = json.loads(line)
                    if event["type"] != "snapshot" and "seq" in event:
                        assert event["seq"] == seq + 1, f"{build}: event {event['seq']} after {seq}"
                        seq = event["seq"]
                    seen += 1
                    if seen >= left:
                        break
        except (httpx.TransportError, httpx.StreamError):
            pass  # the service died meanwhile: others will ask again
        self._ledger.streams.append(seen)

    def _fetch(self) -> None:
        """Fetch an engine, often only a part of it first."""
        engines = self._ask("GET", "/v1/engines").json()["items"]
        if not engines:
            return
        engine = self._chance.choice(engines)
        path, size = f"/v1/engines/{engine['engine_key']}/plan", engine["plan"]["size"]
        cut = self._chance.randrange(size)
        head = self._ask("GET", path, headers={"Range": f"bytes=0-{cut}"})
        tail = self._ask("GET", path, headers={"Range": f"bytes={cut + 1}-"}) if cut + 1 < size else None
        self._ledger.cuts.append(cut)
        content = head.content + (tail.content if tail else b"")
        assert "sha256:" + hashlib.sha256(content).hexdigest() == engine["plan"]["digest"], f"{path} is not its digest"
        self._ledger.fetched.append(len(content))

    def _look(self) -> None:
        for path in ("/livez", "/v1/builds", "/v1/targets"):
            self._ask("GET", path)


def kill_a_builder(server: Server, chance: random.Random) -> bool:
    """Kill one child of this very server; False when it has none."""
    found = sorted(children(server), key=lambda p: p.pid)
    if not found:
        return False
    try:
        chance.choice(found).kill()
    except psutil.NoSuchProcess:
        return False
    return True

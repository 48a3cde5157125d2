"""Thousands of changed models through the real service: `python -m benchmarks.fuzz [--seed 1] [--count 3000]` (or `make fuzz`).

Each case uploads a model that was changed as its number says, and preflights, submits, waits for or cancels it with
specs that are as odd. Whatever it is, the answer must be one of our codes, the service must live on, and nothing may be
left behind. `--case N` runs one again; models that broke a rule are kept in `--save`.
"""

import argparse
import hashlib
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.fuzz_cases import model_of
from benchmarks.fuzz_specs import spec_of
from tests.conftest import Server
from tests.system.soundness import assert_sound, files
from trtforge.contract.failures import CODES

SLOTS = 2
RUN_S = 60  # of one build
WAITS = 4  # of a minute each: queue and build
OURS = {"internal_error", "builder_unusable", "worker_lost", "publish_failed"}  # codes that say the service is to blame
Json = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--case", type=int, help="this one only")
    parser.add_argument(
        "--save", type=Path, default=Path("fuzz-failures"), help="folder of the models that broke a rule"
    )
    asked = parser.parse_args()
    print(f"--seed {asked.seed} --count {asked.count}", flush=True)
    cases = range(asked.count) if asked.case is None else [asked.case]
    with TemporaryDirectory(prefix="trtforge-fuzz-") as folder:
        broken, outcomes = fuzz(service(Path(folder)), asked.seed, cases, asked.save)
    print(*(f"{count:6} {outcome}" for outcome, count in outcomes.most_common()), *broken, sep="\n")
    print(f"{len(broken)} broke a rule; --seed {asked.seed}")
    return 1 if broken else 0


def service(folder: Path) -> Server:
    return Server(folder / "data", slots=str(SLOTS), cancel_grace_s="1", inspect_timeout_s="20", log_level="warning")


def fuzz(server: Server, seed: int, cases: Iterable[int], save: Path) -> tuple[list[str], "Counter[str]"]:
    """Return what broke a rule, and how often each outcome came; models that broke one are written to `save`."""
    server.start()
    cases = list(cases)
    try:
        with httpx.Client(base_url=server.url, timeout=90, verify=False) as http, ThreadPoolExecutor(SLOTS * 2) as pool:
            found = list(pool.map(lambda number: Case(http, seed, number).run(save), cases))
        broken = [words for case in found for words in case.broken] + at_rest(server, found)
    finally:
        if server.process and server.process.poll() is None:
            server.stop()
    return broken, Counter(outcome for case in found for outcome in case.outcomes)


def at_rest(server: Server, found: "Iterable[Case]") -> list[str]:
    """Return what is wrong with a service after all that: dead, complaining, or with something left behind."""
    if server.process is None or server.process.poll() is not None:
        return [f"the service is dead: {server.log.read_text()[-2000:]}"]
    broken = []
    try:
        assert_sound(server)
    except AssertionError as error:
        broken.append(f"afterwards: {error}")
    kept = {f"sha256:{path.name}" for path in files(server.data / "store" / "models")}
    taken = {case.digest for case in found if case.taken}
    if kept != taken:
        broken.append(f"models on the disk that no answer named, or the other way round: {sorted(kept ^ taken)[:5]}")
    if "Traceback" in (log := server.log.read_text()):
        broken.append(f"the service's log has a traceback: {log[log.index('Traceback') :][:1500]}")
    return broken


class Case:
    """One changed model and what is asked with it."""

    def __init__(self, http: httpx.Client, seed: int, number: int) -> None:
        self._http, self._number = http, number
        self._chance = random.Random(f"{seed}/{number}")
        self._content = model_of(self._chance)
        self.digest = "sha256:" + hashlib.sha256(self._content).hexdigest()
        self.taken = False
        self.broken: list[str] = []
        self.outcomes: list[str] = []

    def run(self, save: Path) -> "Case":
        try:
            self._go()
        except Exception as error:  # a connection that breaks is a finding
            self._break(f"{type(error).__name__}: {error}")
        if self.broken:
            save.mkdir(parents=True, exist_ok=True)
            (save / f"{self._number}.onnx").write_bytes(self._content)
        self._content = b""  # thousands of cases are kept until the end
        return self

    def _go(self) -> None:
        if self._asked("upload", "PUT", f"/v1/models/{self.digest}", content=self._content) is None:
            return
        self.taken = True
        model = self._asked("look", "GET", f"/v1/models/{self.digest}")
        template = self._template()
        if self._chance.random() < 0.5:
            body = {"spec": spec_of(self._chance, template)}
            self._asked("preflight", "POST", f"/v1/models/{self.digest}/preflight", json=body, holds=_preflighted)
        options = {"run_timeout_s": RUN_S, "queue_timeout_s": 120}
        asked = {"model": self.digest, "spec": spec_of(self._chance, template), "options": options}
        submitted = self._asked("submit", "POST", "/v1/builds", json=asked)
        if model is None or submitted is None:
            return
        if submitted["build"] and self._chance.random() < 0.2:
            self._asked("cancel", "DELETE", f"/v1/builds/{submitted['build']['id']}?force=true")
        self._wait(submitted["request_id"])

    def _template(self) -> list[Json]:
        """Legal profiles, as the refusal of a submit without any gives them; [] where none are needed."""
        refused = self._http.post("/v1/builds", json={"model": self.digest, "spec": {"workspace_bytes": 0}})
        template: list[Json] = refused.json().get("template", [])
        return template

    def _wait(self, request_id: str) -> None:
        for _ in range(WAITS):
            request = self._asked("", "GET", f"/v1/requests/{request_id}", headers={"Prefer": "wait=60"})
            if request is None or request["state"] != "waiting":
                break
        else:
            return self._break(f"request {request_id} is not answered")
        if request is not None:
            code = (request["failure"] or {}).get("code")
            self._outcome("build", code or request["state"], request["failure"])
        return None

    def _asked(
        self, step: str, method: str, path: str, holds: Callable[[Json], list[str]] | None = None, **more: Any
    ) -> Json | None:
        """Return the body of a 2xx; None after a refusal, which must be one of ours."""
        answer = self._http.request(method, path, **more)
        body: Json = answer.json()
        if answer.status_code < 300:
            if step:
                self.outcomes.append(f"{step}: ok")
            for code in holds(body) if holds else []:
                self._outcome(step, code, body)
            return body
        known = CODES.get(body.get("code", ""))
        if answer.status_code >= 500 or known is None or known.status != answer.status_code:
            self._break(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
        self._outcome(step, body.get("code", "no code"), body)
        return None

    def _outcome(self, step: str, code: str, said: Json | None) -> None:
        self.outcomes.append(f"{step}: {code}")
        if code in OURS or "Traceback" in str(said) or (code not in CODES and said):
            self._break(f"{step}: {code} {str(said)[:500]}")

    def _break(self, words: str) -> None:
        self.broken.append(f"case {self._number}: {words}")


def _preflighted(body: Json) -> list[str]:
    return [problem["code"] for problem in body["problems"]]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the service of a stopped run ends too
    sys.exit(main())

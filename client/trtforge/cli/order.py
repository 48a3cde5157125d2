"""One order from the command line, from the upload to the plan on disk, and how it ended."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from trtforge.cli.lines import cancelled, failed
from trtforge.cli.manifest import summary
from trtforge.cli.progress import Screen, screen
from trtforge.cli.session import FAILED, INTERRUPTED, describe, exit_code
from trtforge.cli.shapes import fit
from trtforge.cli.stop import Stop
from trtforge.cli.text import complain, console, plain, seconds, size
from trtforge.client import Client
from trtforge.contract.builds import TERMINAL, Build, Refit, Request, Served, Submit, Submitted
from trtforge.contract.engines import Manifest, PlanRef
from trtforge.contract.events import Failed, Stored, Withdrawn
from trtforge.contract.models import Model
from trtforge.contract.words import in_words
from trtforge.errors import ServiceError, TrtforgeError


@dataclass(frozen=True)
class Outcome:
    """How it ended: the last line of `--json`."""

    exit_code: int
    state: str  # succeeded, failed, cancelled, withdrawn, interrupted, detached, refused, unreachable
    disposition: str | None = None
    request_id: str | None = None
    build_id: str | None = None
    engine_key: str | None = None
    plan: PlanRef | None = None
    output: str | None = None  # where the plan is now
    detail: dict[str, Any] = field(default_factory=dict)  # `failure`, `cancel` or `problem`, whichever says why

    @classmethod
    def of_trouble(cls, trouble: Exception, exit_code: int) -> "Outcome":
        if isinstance(trouble, ServiceError):
            return cls(
                exit_code, "refused", detail={"problem": trouble.members or trouble.problem.model_dump(mode="json")}
            )
        state = "unreachable" if isinstance(trouble, TrtforgeError) and exit_code != FAILED else "failed"
        return cls(exit_code, state, detail={"error": str(trouble)})

    def as_json(self) -> str:
        plan = self.plan.model_dump() if self.plan else None
        fields = {name: value for name, value in vars(self).items() if name != "detail"}
        return json.dumps({"type": "result"} | fields | {"plan": plan} | self.detail)


class Order:
    """Carries out one order with one client; talks on `console`, which is quiet when JSON is asked for.

    `submit` asks for it."""

    def __init__(self, client: Client, console: Console, as_json: bool, submit: Callable[[Submit], Submitted]) -> None:
        self._client, self._console, self._as_json = client, console, as_json
        self._ask = submit
        self._stop = Stop(console)
        self._outcome = Outcome(INTERRUPTED, "interrupted")  # grows as more is known
        self._screen: tuple[str, Screen, int | None] | None = None  # build, its screen, last seq shown there
        self._left = ""  # why the build that is watched did not serve this request

    def carry_out(self, ask: Submit, path: Path, goal: Path | None, detach: bool) -> Outcome:
        """Return how it ended. Raises what the client raises."""
        with self._stop.listening():
            try:
                submitted = self._submit(ask, self._upload(path))
                if detach:
                    return self._detached(submitted)
                request = self._follow(submitted)
            except KeyboardInterrupt:
                return self._leave()
            return self._served(request.served, goal) if request.served else self._unserved(request)

    def _upload(self, path: Path) -> Model:
        with bar(self._console, f"upload {plain(path.name)}") as moved:
            model = self._client.upload(path, progress=moved)
        self._say(f"model {model.digest} ({size(model.size)}, {model.node_count} nodes)")
        return model

    def _submit(self, ask: Submit, model: Model) -> Submitted:
        profiles = tuple(fit(profile, model.inputs) for profile in ask.spec.profiles)
        spec = ask.spec.model_copy(update={"profiles": profiles}) if profiles else ask.spec
        ask = ask.model_copy(update={"model": model.digest, "spec": spec})
        with self._stop.held():
            submitted = self._ask(ask)
            self._outcome = replace(
                self._outcome,
                disposition=submitted.disposition,
                request_id=submitted.request_id,
                build_id=submitted.build.id if submitted.build else None,
            )
        self._say(_disposition(submitted))
        return submitted

    def _detached(self, submitted: Submitted) -> Outcome:
        """Print the one thing to go on with: the build's id, or the key of an engine that is there already."""
        key = submitted.engine.engine_key if submitted.engine else None
        if not self._as_json:
            print(submitted.build.id if submitted.build else key, flush=True)
        return replace(self._outcome, exit_code=0, state="detached", engine_key=key)

    def _follow(self, submitted: Submitted) -> Request:
        """Show the build that serves the request, and the next one when it falls back, until the request has ended."""
        request = self._client.request(submitted.request_id)
        while request.state == "waiting":
            build_id = request.builds[-1]
            self._outcome = replace(self._outcome, build_id=build_id)
            self._watch(build_id, submitted.request_id)
            request = self._client.settled(submitted.request_id, request.builds)
            following = request.builds[-1]
            if self._left and (following != build_id or request.served):
                onwards = f"; falling back to build {plain(following)}" if following != build_id else ""
                self._say(f"build {plain(build_id)} {self._left}{onwards}")
        return request

    def _watch(self, build_id: str, request_id: str | None = None) -> None:
        """Show events until the build ends, or until this request has left it; begin where this was left before."""
        if self._screen is None or self._screen[0] != build_id:
            self._screen = build_id, screen(self._console, build_id, self._as_json), None
        _, shown, after = self._screen
        self._left = ""
        with shown:
            for event in self._client.events(build_id, after):
                shown.show(event)
                if isinstance(event, Stored):
                    self._screen = build_id, shown, event.seq
                if isinstance(event, Failed):
                    self._left = f"failed ({plain(event.failure.code)}: {plain(event.failure.message)})"
                if isinstance(event, Withdrawn) and event.request_id == request_id:
                    self._left = f"is left ({plain(event.reason or 'withdrawn')})"
                    return

    def _served(self, served: Served, goal: Path | None) -> Outcome:
        key = served.engine_key
        try:
            manifest = self._fetch(key, goal) if goal else self._client.manifest(key)
        except KeyboardInterrupt:
            complain(
                f"Interrupted. The engine stays on the service; this goes on where it stopped: trtforge fetch {key} -o {plain(goal or '')}"
            )
            return replace(self._outcome, engine_key=key)
        self._say(summary(manifest))
        if served.fallback:
            self._say("This is a fallback, not what was asked for first.")
            for one in served.differs:
                self._say(f"  {plain(one.field)} is {plain(one.have)}, asked was {plain(one.asked)}")
        if goal:
            self._say(f"plan   {plain(goal)} (verified)")
        done = replace(self._outcome, exit_code=0, state="succeeded", engine_key=key, plan=manifest.plan)
        detail = {"served": served.model_dump(mode="json")} if served.fallback else {}
        return replace(done, output=str(goal) if goal else None, detail=detail)

    def _fetch(self, key: str, goal: Path) -> Manifest:
        with bar(self._console, f"fetch {plain(goal.name)}") as moved:
            return self._client.fetch(key, goal, progress=moved)

    def _unserved(self, request: Request) -> Outcome:
        """Say why there is no engine: the request's own failure first, then how its build was stopped."""
        if request.failure:
            complain(failed(request.failure))
            detail: dict[str, Any] = {"failure": request.failure.model_dump(mode="json")}
        else:
            build = self._client.build(request.builds[-1])
            complain(cancelled(build.cancel) if build.cancel else f"The request was {request.state}.")
            detail = {"cancel": build.cancel.model_dump(mode="json") if build.cancel else None}
        if self._outcome.disposition == "known_failure":
            complain("It failed so before; --retry builds it anew.")
        return replace(self._outcome, exit_code=FAILED, state=request.state, detail=detail)

    def _leave(self) -> Outcome:
        """Take the request back and show what became of the build."""
        request_id, build_id = self._outcome.request_id, self._outcome.build_id
        if request_id is None or build_id is None:
            complain("Interrupted; nothing was asked for.")
            return self._outcome
        asked = monotonic()
        complain("Interrupted: taking the request back. Once more leaves at once.")
        try:
            self._client.withdraw(request_id)
        except ServiceError as error:
            complain(str(error))
        request = self._client.request(request_id)
        build_id = request.builds[-1] if request.builds else build_id  # it may have gone on meanwhile
        build = self._client.build(build_id)
        if build.requests > 0 and build.cancel is None:
            others = "1 other waits" if build.requests == 1 else f"{build.requests} others wait"
            complain(f"{others} for build {build.id}: it goes on.")
        else:
            self._watch(build_id)
            build = self._client.build(build_id)
            complain(f"Build {build.id} {_ending(build)}; that took {seconds(monotonic() - asked)}.")
        cancel = build.cancel.model_dump(mode="json") if build.cancel else None
        return replace(self._outcome, detail={"cancel": cancel, "build_state": build.state})

    def _say(self, words: str) -> None:
        self._console.print(words, soft_wrap=True)


def carry_out(
    ask: Submit,
    model: Path,
    goal: Path | None,
    detach: bool,
    as_json: bool,
    url: str | None,
    token: str | None,
    refits: str | None = None,
) -> int:
    """Return the exit code of an order that is carried out from its first word to its last.

    `refits` is the engine that is given the model's weights, instead of a build.
    """
    try:
        with Client(url, token) as client:
            submit = partial(_refit, client, refits) if refits else client.submit
            outcome = Order(client, console(quiet=as_json), as_json, submit).carry_out(ask, model, goal, detach)
    except (TrtforgeError, OSError) as trouble:
        if isinstance(trouble, BrokenPipeError):
            raise
        outcome = Outcome.of_trouble(trouble, exit_code(trouble))
        complain(describe(trouble))
    if as_json:
        print(outcome.as_json(), flush=True)
    return outcome.exit_code


def _refit(client: Client, engine_key: str, ask: Submit) -> Submitted:
    return client.refit(engine_key, Refit(model=ask.model, options=ask.options))


def _disposition(submitted: Submitted) -> str:
    build = f"build {submitted.build.id}" if submitted.build else ""
    match submitted.disposition:
        case "created":
            return f"{build} created" + _nearest(submitted)
        case "joined":
            waiting = submitted.build.requests if submitted.build else 0
            return f"{build} joined: {waiting} requests wait for it"
        case "cached":
            return f"engine {submitted.engine.engine_key if submitted.engine else ''} is there already"
    if submitted.build and submitted.build.state not in TERMINAL:
        before = f"build {plain(submitted.build.follows)}" if submitted.build.follows else "this"
        return f"{before} failed before; falling back to {build}"
    return f"{build} failed before" + ("; there is an engine to fall back to" if submitted.engine else "")


def _nearest(submitted: Submitted) -> str:
    """Say why no engine was there already: what the nearest one has instead."""
    if submitted.nearest is None:
        return ""
    differs = "; ".join(plain(in_words(d.field, d.have, d.asked)) for d in submitted.nearest.differs)
    return f"\nnearest {submitted.nearest.engine_key}, which differs: {differs}"


def _ending(build: Build) -> str:
    if build.cancel and build.state == "cancelled":
        return "was " + cancelled(build.cancel)
    if build.state == "succeeded":
        return "was past its point of no return and succeeded"
    return build.state


@contextmanager
def bar(console: Console, words: str) -> Iterator[Callable[[int, int], None]]:
    """Give a callback that draws bytes moved on a terminal and does nothing elsewhere."""
    if not console.is_terminal or console.quiet:
        yield lambda moved, total: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        drawn = progress.add_task(words, total=None, visible=False)
        yield lambda moved, total: progress.update(drawn, completed=moved, total=total, visible=True)

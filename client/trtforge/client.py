"""The client: upload a model, ask for an engine, watch it being built, fetch the plan. Synchronous, typed, silent."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from trtforge import transfer
from trtforge.admin import Admin
from trtforge.artifacts import Artifacts
from trtforge.connection import Connection, Patience
from trtforge.contract.builds import Build, BuildPage, Reason, Refit, Request, State, Submit, Submitted
from trtforge.contract.compare import EngineDiff
from trtforge.contract.engines import EnginePage, EngineSummary, Manifest
from trtforge.contract.events import Event, Withdrawn
from trtforge.contract.models import Model, Preflight, PreflightAsk
from trtforge.contract.names import Name, NameHistory, NamePage, Want
from trtforge.contract.resolve import Resolve, Resolved
from trtforge.contract.target import Targets, TargetSelector
from trtforge.contract.tokens import Ticket
from trtforge.download import Moved
from trtforge.errors import ServiceError, ServiceUnreachable
from trtforge.signature import Given, PublicKeys
from trtforge.stream import Follower

_LONGEST_WAIT_S = 60.0  # that the service grants
_SETTLE_S = 1.0  # a request is answered or goes on together with its build's last event
_NOT_YET = frozenset({404, 429, 502, 503, 504})  # a name that may come to mean an engine
_JSON = {"Content-Type": "application/json"}


class Client:
    """Talk to one service. Use it as a context manager; it is not for several threads at once.

    `url` defaults to `TRTFORGE_URL`, then to http://127.0.0.1:8080; `token` to `TRTFORGE_TOKEN`. `timeout_s` bounds one
    silence of the service, `patience_s` how long repeatable requests and streams outlive its absence. `public_key` (PEM, or
    files of it; else what `TRTFORGE_PUBLIC_KEY` names): then only engines that one of these signed are fetched.
    Every method raises `ServiceError` when the service refuses and `ServiceUnreachable` when it does not answer.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        public_key: Given | Sequence[Given] | None = None,
    ) -> None:
        self._connection = Connection(url, token, timeout_s, patience_s)
        self.artifacts = Artifacts(self._connection, PublicKeys.named(public_key))
        self.url = self._connection.url
        self.admin = Admin(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # ---- models and targets

    def upload(self, path: str | Path, progress: Moved | None = None) -> Model:
        """Return the model of an .onnx file and the files of its weights beside it, sending what is not there.

        `progress(sent, total)` in bytes, of one file after the other.
        """
        return transfer.upload(self._connection, Path(path), progress)

    def model(self, digest: str) -> Model:
        return Model.model_validate_json(self._get(f"/v1/models/{digest}"))

    def preflight(self, digest: str, ask: PreflightAsk | None = None) -> Preflight:
        """Return what a build of this model would fail on, without building it."""
        body = (ask or PreflightAsk()).model_dump_json(exclude_unset=True)
        headers = {"Content-Type": "application/json"}
        answer = self._connection.send(
            "POST", f"/v1/models/{digest}/preflight", content=body, headers=headers, read_s=transfer.INSPECTION_S
        )
        return Preflight.model_validate_json(answer.content)

    def targets(self) -> Targets:
        return Targets.model_validate_json(self._get("/v1/targets"))

    # ---- builds and requests

    def submit(self, ask: Submit, idempotency_key: str | None = None, wait_s: float | None = None) -> Submitted:
        """Ask for an engine; sent again under the same key while the service is away, so it counts once.

        `wait_s` (at most 60) holds the answer back until the request has ended.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex, "Content-Type": "application/json"}
        body = ask.model_dump_json(exclude_unset=True)
        answer = self._connection.insist("POST", "/v1/builds", content=body, headers=headers, wait_s=wait_s)
        return Submitted.model_validate_json(answer.content)

    def refit(self, engine_key: str, ask: Refit, idempotency_key: str | None = None) -> Submitted:
        """Ask for an engine with the weights of another model, which is here already; sent again as `submit` is."""
        headers = {"Idempotency-Key": idempotency_key or uuid4().hex, "Content-Type": "application/json"}
        body = ask.model_dump_json(exclude_unset=True)
        answer = self._connection.insist("POST", f"/v1/engines/{engine_key}/refit", content=body, headers=headers)
        return Submitted.model_validate_json(answer.content)

    def build(self, build_id: str, wait_s: float | None = None) -> Build:
        """Return a build, after its end or after `wait_s` seconds (at most 60), whichever is first."""
        return Build.model_validate_json(self._get(f"/v1/builds/{build_id}", wait_s=wait_s))

    def builds(
        self,
        state: State | None = None,
        model: str | None = None,
        engine_key: str | None = None,
        label: str | None = None,
        page_size: int | None = None,
    ) -> Iterator[Build]:
        """Yield builds, newest first, page after page. `label` is `key=value`."""
        asked = {"state": state, "model": model, "engine_key": engine_key, "label": label, "limit": page_size}
        for raw in self._pages("/v1/builds", asked):
            page = BuildPage.model_validate_json(raw)
            yield from page.items
            asked["cursor"] = page.next_cursor

    def log(self, build_id: str) -> str:
        """Return the builder's own log of a build, as text."""
        return self._get(f"/v1/builds/{build_id}/log").decode(errors="replace")

    def cancel(self, build_id: str, reason: str | None = None, force: bool = False) -> None:
        """Ask for the end of a build; it has ended only when its state says so.

        Refused (`build_shared`) while others wait for it, unless `force`.
        """
        self._connection.send(
            "DELETE",
            f"/v1/builds/{build_id}",
            params={"force": "true"} if force else {},
            content=Reason(reason=reason).model_dump_json(),
            headers={"Content-Type": "application/json"},
        )

    def request(self, request_id: str, wait_s: float | None = None) -> Request:
        """Return a request, after its end or after `wait_s` seconds (at most 60), whichever is first."""
        return Request.model_validate_json(self._get(f"/v1/requests/{request_id}", wait_s=wait_s))

    def wait(self, request_id: str) -> Request:
        """Return a request after its end, however many builds it goes through until then."""
        while (request := self.request(request_id, wait_s=_LONGEST_WAIT_S)).state == "waiting":
            pass
        return request

    def withdraw(self, request_id: str) -> None:
        """Take back one request; the build goes on while others wait for it."""
        self._connection.send("DELETE", f"/v1/requests/{request_id}")

    def events(self, build_id: str, after: int | None = None) -> Iterator[Event]:
        """Yield a build's events until its last, reconnecting by itself; no stored event comes twice.

        `after` is the seq of the last stored event already known; None begins with the first.
        """
        return Follower(self._connection, build_id, after).events()

    def ticket(self, build_id: str) -> Ticket:
        """Return an address of a build's stream for a reader that can send no token, as a browser's EventSource."""
        return Ticket.model_validate_json(self._connection.insist("POST", f"/v1/builds/{build_id}/ticket").content)

    def follow(self, request_id: str) -> Iterator[tuple[str, Event]]:
        """Yield (build id, event) for each build of a request in turn, until the request has ended.

        A build that the request left, because its time ran out or it was withdrawn, is followed to that event.
        """
        followed: tuple[str, ...] = ()
        while (request := self.settled(request_id, followed)).builds != followed:
            for build_id in request.builds[len(followed) :]:
                for event in self.events(build_id):
                    yield build_id, event
                    if isinstance(event, Withdrawn) and event.request_id == request_id:
                        break
            followed = request.builds

    def settled(self, request_id: str, builds: tuple[str, ...]) -> Request:
        """Return a request that went through `builds` once it has ended or goes through a further one."""
        request = self.request(request_id)
        while request.state == "waiting" and request.builds == builds:  # answered by a replica that lags behind
            request = self.request(request_id, wait_s=_SETTLE_S)
        return request

    # ---- engines

    def engines(
        self, model: str | None = None, builder: str | None = None, gpu: str | None = None, page_size: int | None = None
    ) -> Iterator[EngineSummary]:
        """Yield engines, newest first, page after page."""
        asked = {"model": model, "builder": builder, "gpu": gpu, "limit": page_size}
        for raw in self._pages("/v1/engines", asked):
            page = EnginePage.model_validate_json(raw)
            yield from page.items
            asked["cursor"] = page.next_cursor

    def manifest(self, engine_key: str) -> Manifest:
        return Manifest.model_validate_json(self._get(f"/v1/engines/{engine_key}"))

    def diff(self, a: str, b: str) -> EngineDiff:
        """Return in what engine `b` is not like engine `a`."""
        return EngineDiff.model_validate_json(self._get(f"/v1/engines/{a}/diff/{b}"))

    def resolve(self, want: Resolve) -> Resolved:
        """Return the engine that a machine can take. Raises `no_compatible_engine` with the near misses."""
        body = want.model_dump_json(exclude_unset=True)
        answer = self._connection.insist("POST", "/v1/engines/resolve", content=body, headers=_JSON)
        return Resolved.model_validate_json(answer.content)

    def pin(self, engine_key: str, pinned: bool = True) -> None:
        """Keep an engine from being removed, or no longer."""
        self._connection.insist("PUT" if pinned else "DELETE", f"/v1/engines/{engine_key}/pin")

    def remove(self, engine_key: str) -> None:
        """Remove an engine. Refused (`engine_pinned`, `engine_busy`) while it is pinned or its key is being built."""
        self._connection.send("DELETE", f"/v1/engines/{engine_key}")

    # ---- names

    def names(self, page_size: int | None = None) -> Iterator[Name]:
        """Yield names, newest first, page after page."""
        asked: dict[str, str | int | None] = {"limit": page_size}
        for raw in self._pages("/v1/names", asked):
            page = NamePage.model_validate_json(raw)
            yield from page.items
            asked["cursor"] = page.next_cursor

    def name(self, name: str) -> Name:
        return Name.model_validate_json(self._get(f"/v1/names/{name}"))

    def name_history(self, name: str) -> NameHistory:
        return NameHistory.model_validate_json(self._get(f"/v1/names/{name}/history"))

    def set_name(self, name: str, want: Want) -> Name:
        """Let a name stand for `want`, for everyone from then on."""
        body = want.model_dump_json(exclude_unset=True)
        answer = self._connection.insist("PUT", f"/v1/names/{name}", content=body, headers=_JSON)
        return Name.model_validate_json(answer.content)

    def remove_name(self, name: str) -> None:
        self._connection.send("DELETE", f"/v1/names/{name}")

    def named(self, name: str, machine: TargetSelector, wait_s: float = 0.0) -> str:
        """Return the key of the engine that a name means for a machine now.

        Asks again for `wait_s` seconds while there is none: the name is not set yet, its engine not asked for or being
        built, the service not up. Then raises what the last answer was.
        """
        said = machine.model_dump(exclude_none=True, exclude={"compute_capabilities"})
        if machine.compute_capabilities:
            said["compute_capability"] = machine.compute_capabilities[0]
        patience = Patience(wait_s)
        while True:
            try:
                answer = self._connection.send("GET", f"/v1/names/{name}/ready", params=said)
                return answer.headers["Content-Location"].rpartition("/")[2]
            except (ServiceError, ServiceUnreachable) as trouble:
                may_pass = isinstance(trouble, ServiceUnreachable) or trouble.problem.status in _NOT_YET
                if not may_pass or not patience.pause(getattr(trouble, "retry_after", None)):
                    raise

    def ready(self, engine_key: str) -> bool:
        """Say whether the engine can be fetched now; False while it is being built. Unknown keys raise `not_found`."""
        try:
            self._get(f"/v1/engines/{engine_key}/ready")
        except ServiceError as error:
            if error.problem.status == 503:
                return False
            raise
        return True

    def fetch(self, engine_key: str, path: str | Path, progress: Moved | None = None) -> Manifest:
        """Put the plan of an engine at `path`, verified, whole or not at all, and return its manifest.

        What a call before this one left after a cut is gone on with, in another process too.
        Raises `PlanMismatch` when the bytes are not those the manifest names, `SignatureRefused` when a public key was
        given and the engine's signature does not hold.
        """
        return self.artifacts.fetch(engine_key, Path(path), progress).manifest

    # ---- service

    def readiness(self, wait_s: float = 0.0) -> None:
        """Return once the service takes builds; after `wait_s` seconds raise with what it says is missing."""
        patience = Patience(wait_s)
        while True:
            try:
                self._get("/readyz")
                return
            except (ServiceError, ServiceUnreachable):
                if not patience.pause():
                    raise

    def _get(self, path: str, wait_s: float | None = None) -> bytes:
        return self._connection.send("GET", path, wait_s=wait_s).content

    def _pages(self, path: str, asked: dict[str, str | int | None]) -> Iterator[bytes]:
        """Yield page after page; the reader puts the next cursor into `asked`."""
        while True:
            params = {name: value for name, value in asked.items() if value is not None}
            yield self._connection.send("GET", path, params=params).content
            if asked.get("cursor") is None:
                return

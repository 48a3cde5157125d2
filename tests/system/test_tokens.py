"""Who may do what, over HTTP: scopes on every route, tickets, and what a token calls its own."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from typer.testing import CliRunner

from app.main import create_app
from app.settings import Settings
from tests.conftest import TLS, Server
from tests.system.api import Api
from tests.system.conftest import running
from tests.system.models import SLOW, relus
from tests.system.problems import assert_problem
from trtforge.aio import AsyncClient
from trtforge.cli.main import app
from trtforge.client import Client
from trtforge.contract.tokens import Scope
from trtforge.errors import ServiceError

FIRST = "the-first-token-of-the-tests"
KEY = "sha256:" + "0" * 64
SCOPES: tuple[Scope, ...] = ("read", "build", "admin")


@dataclass
class Guarded:
    server: Server
    secrets: dict[str, str]  # by scope

    def ask(self, scope: str, method: str, path: str, **more: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.secrets[scope]}"}
        return httpx.request(method, self.server.url + path, headers=headers, verify=TLS, timeout=60, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    settings = {"admin_token": FIRST, "slots": "1", "cancel_grace_s": "0.5"}
    for server in running(tmp_path_factory.mktemp("tokens"), **settings):
        with Client(server.url, token=FIRST) as client:
            yield Guarded(server, {s: client.admin.create_token(s, s).secret for s in SCOPES})


NEEDS: dict[Scope, list[str]] = {
    "read": [
        "GET /metrics",
        "GET /v1/builds",
        "GET /v1/builds/{build_id}",
        "GET /v1/builds/{build_id}/events",
        "GET /v1/builds/{build_id}/log",
        "POST /v1/builds/{build_id}/ticket",
        "GET /v1/engines",
        "GET /v1/engines/{a}/diff/{b}",
        "GET /v1/engines/{key}",
        "GET /v1/engines/{key}/plan",
        "HEAD /v1/engines/{key}/plan",
        "GET /v1/engines/{key}/signature",
        "GET /v1/engines/{key}/triton",
        "GET /v1/engines/{key}/triton/config.pbtxt",
        "POST /v1/engines/resolve",
        "GET /v1/export",
        "HEAD /v1/files/{digest}",
        "GET /v1/models/{digest}",
        "GET /v1/names",
        "GET /v1/names/{name}",
        "GET /v1/names/{name}/history",
        "GET /v1/names/{name}/plan",
        "HEAD /v1/names/{name}/plan",
        "GET /v1/plans/{digest}",
        "HEAD /v1/plans/{digest}",
        "GET /v1/requests/{request_id}",
        "GET /v1/signing-keys",
        "GET /v1/targets",
    ],
    "build": [
        "POST /v1/builds",
        "DELETE /v1/builds/{build_id}",
        "POST /v1/engines/{key}/rebuild",
        "POST /v1/engines/{key}/refit",
        "PUT /v1/files/{digest}",
        "POST /v1/models",
        "PUT /v1/models/{digest}",
        "POST /v1/models/{digest}/preflight",
        "PUT /v1/names/{name}",
        "DELETE /v1/names/{name}",
        "DELETE /v1/requests/{request_id}",
    ],
    "admin": [
        "DELETE /v1/engines/{key}",
        "PUT /v1/engines/{key}/pin",
        "DELETE /v1/engines/{key}/pin",
        "POST /v1/gc",
        "POST /v1/import",
        "POST /v1/tokens",
        "GET /v1/tokens",
        "DELETE /v1/tokens/{token_id}",
        "POST /v1/verify",
    ],
}
NONE = dict.fromkeys(("key", "a", "b", "digest"), KEY) | dict.fromkeys(
    ("build_id", "request_id", "token_id", "name"), "none"
)


@pytest.mark.parametrize(("needed", "operation"), [(scope, one) for scope, some in NEEDS.items() for one in some])
def test_each_address_takes_its_scope_and_those_above(guarded: Guarded, needed: Scope, operation: str):
    method, path = operation.split()
    for scope in SCOPES:
        answer = guarded.ask(scope, method, path.format(**NONE))
        assert answer.status_code != 401
        allowed = SCOPES.index(scope) >= SCOPES.index(needed)
        assert (answer.status_code == 403) == (not allowed), (scope, answer.text)
        if not allowed and method != "HEAD":
            assert f"scope {needed}" in assert_problem(answer, "forbidden")["detail"]


def test_every_address_that_asks_who_asks_is_among_these():
    paths = create_app(Settings()).openapi()["paths"]
    guarded = {
        f"{method.upper()} {path}"
        for path, item in paths.items()
        for method, one in item.items()
        if one.get("security")
    }
    assert guarded == {one for some in NEEDS.values() for one in some}


def test_no_route_is_forgotten():
    """A route asks who asks, or is one of those that anybody may ask."""
    paths = create_app(Settings()).openapi()["paths"]
    asked = {path: [operation.get("security") for operation in item.values()] for path, item in paths.items()}
    assert {path for path, security in asked.items() if not all(security)} == {
        "/livez",
        "/readyz",
        "/v1/schemas/manifest",
        "/v1/engines/{key}/ready",
        "/v1/names/{name}/ready",
    }


def test_a_secret_is_shown_once_and_a_revoked_one_is_nothing(guarded: Guarded):
    made = guarded.ask("admin", "POST", "/v1/tokens", json={"name": "ci", "scope": "read", "expires_in_s": 3600})
    assert made.status_code == 201
    token = made.json()
    secret = token.pop("secret")
    listed = guarded.ask("admin", "GET", "/v1/tokens?limit=2").json()
    assert listed["items"][0] == token
    assert listed["next_cursor"]
    assert secret not in guarded.ask("admin", "GET", "/v1/tokens").text
    api = Api(guarded.server, secret)
    assert api.http.get("/v1/targets").status_code == 200
    for _ in range(2):
        assert guarded.ask("admin", "DELETE", f"/v1/tokens/{token['id']}").status_code == 204
        assert_problem(api.http.get("/v1/targets"), "unauthorized")
    assert secret not in guarded.server.log.read_text()
    assert_problem(guarded.ask("admin", "DELETE", "/v1/tokens/tok_none"), "not_found")


@pytest.mark.parametrize(
    "body",
    [{}, {"name": ""}, {"name": "a\nb"}, {"name": "x", "scope": "root"}, {"name": "x", "expires_in_s": 0}, {"n": 1}],
)
def test_a_wish_for_a_token_that_is_none(guarded: Guarded, body: dict[str, object]):
    assert_problem(guarded.ask("admin", "POST", "/v1/tokens", json=body), "invalid_request")


def test_a_token_stops_its_own_and_nobody_elses(guarded: Guarded):
    admin = Api(guarded.server, FIRST)
    one, other = (guarded.ask("admin", "POST", "/v1/tokens", json={"name": n}).json() for n in ("one", "other"))
    ours, theirs = Api(guarded.server, one["secret"]), Api(guarded.server, other["secret"])
    model = ours.upload(relus(SLOW))
    mine = ours.submit(model, headers={"Idempotency-Key": "same"})
    joined = theirs.submit(model, headers={"Idempotency-Key": "same"})
    assert (joined["disposition"], joined["build"]["id"]) == ("joined", mine["build"]["id"])  # a key is one token's
    assert joined["request_id"] != mine["request_id"]
    build = f"/v1/builds/{mine['build']['id']}"
    assert assert_problem(ours.http.delete(build), "build_shared")["requests"] == 1
    assert_problem(ours.http.delete(f"{build}?force=true"), "forbidden")
    assert_problem(ours.http.delete(f"/v1/requests/{joined['request_id']}"), "forbidden")
    assert theirs.http.delete(f"/v1/requests/{joined['request_id']}").status_code == 204
    assert ours.http.delete(build).status_code == 202
    ended = admin.ended(mine["build"]["id"])
    assert (ended["state"], ended["cancel"]["by"]) == ("cancelled", one["id"])


def test_a_ticket_opens_one_stream_and_is_not_logged(guarded: Guarded):
    api = Api(guarded.server, FIRST)
    build = api.ended(api.start(relus(3)))["id"]
    answer = guarded.ask("read", "POST", f"/v1/builds/{build}/ticket")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    ticket = answer.json()
    bare = httpx.Client(base_url=guarded.server.url, verify=TLS)
    stream = bare.get(ticket["url"])
    assert (stream.status_code, "event: succeeded" in stream.text) == (200, True)
    last = stream.text.rpartition("\nid: ")[2].partition("\n")[0]
    assert bare.get(ticket["url"], headers={"Last-Event-ID": last}).status_code == 204
    address, _, query = ticket["url"].partition("?")
    for wrong in (address, f"{address}?ticket=x", f"/v1/builds/{build}?{query}", f"/v1/builds?{query}"):
        assert_problem(bare.get(wrong), "unauthorized")
    assert ticket["ticket"] not in guarded.server.log.read_text()


def test_on_loopback_without_a_first_token_everything_is_open(api: Api):
    token = api.http.post("/v1/tokens", json={"name": "later", "scope": "read"}).json()
    for header in ({}, {"Authorization": f"Bearer {token['secret']}"}, {"Authorization": "Bearer another"}):
        assert api.http.get("/v1/tokens", headers=header).status_code == 200
    ticket = api.http.post(f"/v1/builds/{api.built(relus(4))['id']}/ticket").json()
    assert api.http.get(ticket["url"]).status_code == 200
    assert api.http.delete(f"/v1/tokens/{token['id']}").status_code == 204


def test_the_command_and_the_clients(guarded: Guarded):
    def trtforge(*words: str, token: str = FIRST) -> tuple[int, str]:
        env = {"TRTFORGE_URL": guarded.server.url, "TRTFORGE_TOKEN": token}
        ended = CliRunner().invoke(app, ["token", *words], env=env)
        return ended.exit_code, ended.stdout

    code, secret = trtforge("create", "nightly", "--scope", "read", "--expires-in", "90d")
    assert code == 0
    made = json.loads(trtforge("create", "other", "--json")[1])
    assert made["scope"] == "build"
    assert trtforge("create", "x", "--expires-in", "soon")[0] == 2
    assert trtforge("list", token=secret.strip())[0] == 2
    lines = trtforge("list")[1].splitlines()
    assert "nightly" in lines[1]
    assert secret[:15] in lines[1]
    assert secret.strip() not in trtforge("list", "--json")[1]
    assert json.loads(trtforge("list", "--json")[1].splitlines()[0])["id"] == made["id"]
    assert trtforge("revoke", made["id"])[0] == 0
    assert "revoked" in trtforge("list")[1].splitlines()[0]
    with Client(guarded.server.url, token=made["secret"]) as client, pytest.raises(ServiceError, match="No token"):
        client.targets()


def test_the_async_client_reaches_the_same(guarded: Guarded):
    async def ask() -> None:
        async with AsyncClient(guarded.server.url, token=FIRST) as client:
            made = await client.admin.create_token("async", "read")
            assert made.id in [t.id async for t in client.admin.tokens()]
            await client.admin.revoke_token(made.id)

    asyncio.run(ask())

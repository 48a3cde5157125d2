"""Addresses, methods, headers and parameters that cannot be: the one error shape, on both databases."""

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import Server
from tests.system.api import Api
from tests.system.conftest import running
from tests.system.models import SLOW, relus, same_relus
from tests.system.problems import assert_problem, nothing_changes

KEY = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def on_postgres(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Postgres refuses what SQLite lets through."""
    name = f"t{uuid4().hex}"
    with closing(psycopg.connect(postgres, autocommit=True)) as admin:
        admin.execute(f"create database {name}")
    url = postgres.replace("/postgres?", f"/{name}?") if "/postgres?" in postgres else f"{_base(postgres)}/{name}"
    yield from running(tmp_path_factory.mktemp("pg"), database_url=url, max_body_bytes="300000")


def _base(url: str) -> str:
    return url.rsplit("/", 1)[0]


@pytest.fixture(params=["sqlite", "postgres"])
def asked(request: pytest.FixtureRequest) -> Api:
    server: Server = request.getfixturevalue("shared" if request.param == "sqlite" else "on_postgres")
    return Api(server)


def place(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


WRONG = [
    ("GET", "/v1/builds/bld_none", "not_found"),
    ("GET", "/v1/builds/bld_none/events", "not_found"),
    ("GET", "/v1/builds/bld_none/log", "not_found"),
    ("DELETE", "/v1/builds/bld_none", "not_found"),
    ("GET", "/v1/requests/req_none", "not_found"),
    ("DELETE", "/v1/requests/req_none", "not_found"),
    ("GET", f"/v1/engines/{KEY}", "not_found"),
    ("GET", f"/v1/engines/{KEY}/plan", "not_found"),
    ("GET", f"/v1/engines/{KEY}/ready", "not_found"),
    ("GET", f"/v1/plans/{KEY}", "not_found"),
    ("GET", f"/v1/models/{KEY}", "not_found"),
    ("GET", "/v1/engines/nonsense", "invalid_request"),
    ("GET", "/v1/engines/nonsense/plan", "invalid_request"),
    ("GET", "/v1/engines/nonsense/ready", "invalid_request"),
    ("GET", "/v1/plans/nonsense", "invalid_request"),
    ("GET", "/nothing/here", "not_found"),
    ("GET", "/v2/builds", "not_found"),
    ("GET", "/docs", "not_found"),
    ("GET", "/v1/builds/../../etc/passwd", "not_found"),
    ("GET", "/v1/builds/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "not_found"),
    ("GET", "/v1/builds/..%2f..%2fetc%2fpasswd/log", "not_found"),
    ("GET", "/v1/plans/..%2f..%2f..%2ftrtforge.db", "not_found"),
    ("GET", "/v1/engines/%2e%2e/plan", "invalid_request"),
    ("GET", "/v1/builds/a%00b", "invalid_request"),
    ("GET", "/v1/builds/a%00b/log", "invalid_request"),
    ("DELETE", "/v1/requests/%00", "invalid_request"),
    ("GET", "/v1/builds/%ff%fe", "not_found"),
    ("GET", "/v1/builds/" + "x" * 5000, "not_found"),
    ("PATCH", "/v1/builds", "method_not_allowed"),
    ("DELETE", "/v1/builds", "method_not_allowed"),
    ("PUT", "/v1/builds/bld_1", "method_not_allowed"),
    ("POST", "/v1/targets", "method_not_allowed"),
    ("POST", f"/v1/plans/{KEY}", "method_not_allowed"),
    ("DELETE", f"/v1/models/{KEY}", "method_not_allowed"),
    ("OPTIONS", "/v1/builds", "method_not_allowed"),
    ("TRACE", "/v1/builds", "method_not_allowed"),
    ("GET", "/v1/builds?state=done", "invalid_request"),
    ("GET", "/v1/builds?model=resnet50", "invalid_request"),
    ("GET", "/v1/builds?engine_key=x", "invalid_request"),
    ("GET", "/v1/builds?label=team", "invalid_request"),
    ("GET", "/v1/builds?label=a=%00", "invalid_request"),
    ("GET", "/v1/engines?gpu=%00", "invalid_request"),
    ("GET", "/v1/builds?limit=0", "invalid_request"),
    ("GET", "/v1/builds?limit=501", "invalid_request"),
    ("GET", "/v1/builds?limit=ten", "invalid_request"),
    ("GET", "/v1/builds?cursor=nonsense", "invalid_request"),
    ("GET", "/v1/builds?cursor=%F0%9F%98%80", "invalid_request"),
    ("GET", "/v1/builds?cursor=" + place("2024-01-01T00:00:00 bld_1"), "invalid_request"),
    ("GET", "/v1/builds?cursor=" + place("2024-01-01T00:00:00+00:00 bld\0"), "invalid_request"),
    ("GET", "/v1/builds?cursor=" + place("0001-01-01T00:00:00+23:59 bld_1"), "invalid_request"),
    ("GET", "/v1/engines?cursor=nonsense", "invalid_request"),
    ("GET", "/v1/engines?limit=-1", "invalid_request"),
    ("GET", "/v1/engines?model=x", "invalid_request"),
]


@pytest.mark.parametrize(("method", "address", "code"), WRONG)
def test_addresses_methods_and_parameters(asked: Api, method: str, address: str, code: str) -> None:
    """As a raw target, so that the client cannot tidy it up."""
    url = httpx.URL(asked.server.url).copy_with(raw_path=address.encode())
    with nothing_changes(asked):
        answer = asked.http.send(httpx.Request(method, url))
        body = answer.json()
        assert (answer.status_code, body["code"]) == (
            {"not_found": 404, "method_not_allowed": 405}.get(code, 422),
            code,
        )
        if url.path == body["instance"]:
            assert_problem(answer, code)
        assert "root:" not in answer.text
    if code == "method_not_allowed":
        assert answer.headers["allow"]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "0x1", "9" * 10, "9" * 5000, "1 2", "²"])
def test_a_last_event_id_that_is_none_of_ours(asked: Api, last: str) -> None:
    build = asked.submit(asked.upload(same_relus()))
    build_id = build["build"]["id"] if build["build"] else asked.get("/v1/builds")["items"][0]["id"]
    headers = {"Last-Event-ID": last.encode("latin-1")}
    assert_problem(asked.http.get(f"/v1/builds/{build_id}/events", headers=headers), "invalid_request")  # type: ignore[arg-type]


@pytest.mark.parametrize("after", ["x", "-1", "1.5", ""])
def test_an_after_that_is_no_number(asked: Api, after: str) -> None:
    assert_problem(asked.http.get("/v1/builds/bld_1/events", params={"after": after}), "invalid_request")


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_bad_idempotency_key(asked: Api, key: str) -> None:
    model = asked.upload(same_relus())
    with nothing_changes(asked):
        answer = asked.http.post("/v1/builds", json={"model": model}, headers={"Idempotency-Key": key})
        assert_problem(answer, "invalid_request")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"why": "x"}', "invalid_request"),
        (b'{"reason": 3}', "invalid_request"),
        (b'{"reason": "a\\u0000b"}', "malformed_json"),
        (b'{"reason"', "malformed_json"),
        (b"[]", "invalid_request"),
    ],
)
@pytest.mark.parametrize("address", ["/v1/builds/bld_1", "/v1/requests/req_1"])
def test_a_bad_reason(asked: Api, address: str, body: bytes, code: str) -> None:
    answer = asked.http.request("DELETE", address, content=body, headers={"Content-Type": "application/json"})
    assert_problem(answer, code)


def test_head_answers_where_bytes_are_and_nowhere_else(api: Api) -> None:
    build = api.built(same_relus()) if not (found := _shared_engine(api)) else found
    plan = api.http.head(f"/v1/engines/{build['engine_key']}/plan")
    assert (plan.status_code, plan.content) == (200, b"")
    assert int(plan.headers["content-length"]) > 0
    assert api.http.head("/v1/builds").status_code == 405


def _shared_engine(api: Api) -> dict[str, str] | None:
    items: list[dict[str, str]] = api.get("/v1/engines")["items"]
    return items[0] if items else None


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("wait=1", 1),
        ("respond-async, wait=1", 1),
        ("wait=1; foo=bar", 1),
        ('wait="1"', 1),
        ("WAIT=1", None),
        ("wait=-1", None),
        ("wait=x", None),
        ("wait", None),
        ("", None),
        ("swait=1", None),
    ],
)
def test_prefer_is_a_wish_never_an_error(calm: Api, prefer: str, applied: int | None) -> None:
    busy = calm.get("/v1/builds", state="running")["items"]
    build = busy[0]["id"] if busy else calm.start(relus(SLOW))
    answer = calm.http.get(f"/v1/builds/{build}", headers={"Prefer": prefer})
    assert answer.status_code == 200
    assert answer.headers.get("preference-applied") == (f"wait={applied}" if applied else None)
    assert (answer.elapsed.total_seconds() >= 1) == bool(applied)


def test_no_leftovers_of_a_path_are_in_any_answer(api: Api) -> None:
    here = str(Path(__file__).parents[2])
    for method, address, _ in WRONG:
        url = httpx.URL(api.server.url).copy_with(raw_path=address.encode())
        text = api.http.send(httpx.Request(method, url)).text
        assert here not in text
        assert str(api.server.data) not in text

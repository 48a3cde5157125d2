"""The one error shape, and that a refusal changed nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import httpx

from tests.system.api import PROBLEM, Api, Json, eventually, staged
from trtforge.contract.failures import CODES

MEMBERS = {"type", "title", "status", "code", "detail", "remedy", "instance", "errors"}


def assert_problem(answer: httpx.Response, code: str) -> Json:
    """Assert that an answer is the problem `code` in the one shape, and return it."""
    assert answer.headers["content-type"] == PROBLEM, answer.text[:500]
    body: Json = answer.json()
    assert body.keys() >= MEMBERS
    assert body["code"] == code, body
    assert answer.status_code == body["status"] == CODES[code].status
    assert body["title"]
    assert HTTPStatus(answer.status_code)
    assert body["detail"]
    assert body["remedy"]
    assert "Traceback" not in answer.text
    assert body["instance"] == answer.request.url.path
    for entry in body["errors"]:
        assert entry.keys() == {"code", "where", "message", "remedy"}
        assert entry["message"]
        assert entry["remedy"]
    return body


@contextmanager
def nothing_changes(api: Api) -> Iterator[None]:
    """What is inside must start no build, touch no engine and leave nothing in staging.

    Builds that run on a shared server may go on, and end with engines of their own.
    """

    def kept() -> tuple[list[str], dict[str, Json]]:
        builds, engines = (api.get(path, limit=500)["items"] for path in ("/v1/builds", "/v1/engines"))
        return [build["id"] for build in builds], {engine["engine_key"]: engine for engine in engines}

    builds, engines = kept()
    yield
    builds_now, engines_now = kept()
    assert builds_now == builds
    assert engines_now.items() >= engines.items()
    eventually(lambda: staged(api.server.data) == [])
    assert api.http.get("/readyz").status_code == 200

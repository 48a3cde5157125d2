"""/openapi.json against the service: no 5xx, no answer that is not in it, and in none what is nobody's business.

The same requests in every run, `TRTFORGE_FUZZ_EXAMPLES` (6) of each kind for each address; `make fuzz-api` makes more.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from app.main import create_app
from app.settings import Settings
from tests.conftest import Server
from tests.system.api import PROBLEM, Api
from tests.system.conftest import running
from tests.system.models import relus
from trtforge.contract.failures import CODES

EXAMPLES = int(os.environ.get("TRTFORGE_FUZZ_EXAMPLES", "6"))
FIRST = "the-first-token-of-the-tests"
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
OPERATIONS = [one.ok() for one in SCHEMA.get_all_operations()]  # type: ignore[union-attr]  # one that is none raises
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
FEW = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Asked:
    """A service with one of everything, so that generated requests also meet what exists."""

    server: Server
    real: dict[str, str]  # by the name of the path's parameter

    def private(self) -> list[str]:
        return [str(self.server.data), FIRST, "Traceback", 'File "/', "site-packages", "sqlalchemy", "psycopg"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    for server in running(tmp_path_factory.mktemp("openapi"), admin_token=FIRST, slots="1", drain_s="0"):
        api = Api(server, FIRST)
        model = api.upload(relus(2))
        submitted = api.submit(model)
        build = api.ended(submitted["build"]["id"])
        key = build["engine_key"]
        assert api.http.put("/v1/names/one", json={"model": model}).status_code == 201
        token = api.http.post("/v1/tokens", json={"name": "one"}).json()
        real = {"digest": model, "build_id": build["id"], "request_id": submitted["request_id"], "name": "one"}
        yield Asked(server, real | {"key": key, "a": key, "b": key, "token_id": token["id"]})


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.label)
def test_every_answer_is_in_the_document(asked: Asked, operation: Any) -> None:
    generated = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in MODES))

    @FEW
    @given(case=generated, real=st.booleans())
    def ask(case: Any, real: bool) -> None:
        if real and case.path_parameters:
            case.path_parameters = {n: asked.real.get(n, v) for n, v in case.path_parameters.items()}
        if real and isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = asked.real["digest"]
        answer = case.call(base_url=asked.server.url, headers={"Authorization": f"Bearer {FIRST}"}, timeout=60)
        case.validate_response(answer, checks=CHECKS)
        for words in asked.private():
            assert words not in answer.content.decode(errors="replace"), case.as_curl_command()
        if answer.content and answer.headers.get("content-type", [""])[0] == PROBLEM:
            assert answer.json()["code"] in CODES

    ask()


def test_without_a_token_the_answer_is_in_the_document_too(asked: Asked) -> None:
    for operation in OPERATIONS:
        if "security" not in operation.definition.raw:
            continue
        path = operation.path.format_map(asked.real)
        answer = Api(asked.server).http.request(operation.method, path)
        assert answer.status_code == 401, operation.label
        assert "401" in operation.definition.raw["responses"]

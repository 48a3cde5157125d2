"""Whatever a submit holds, the answer is a build or a problem in the one shape, never a failure of ours."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Server
from tests.system.api import PROBLEM, Api
from tests.system.models import open_relus
from trtforge.contract.failures import CODES

EXAMPLES = 60
UNKNOWN = "sha256:" + "0" * 64  # never here, so that no example starts a build

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(["t0", "8.9", UNKNOWN])
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def near(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object that is nearly right: each field as it should be, or anything, or absent, and perhaps one more."""
    some = {name: st.one_of(right, anything) for name, right in fields.items()}
    right = st.fixed_dictionaries({}, optional=some)
    return st.one_of(right, right, st.tuples(right, st.text(max_size=5), anything).map(lambda t: {**t[0], t[1]: t[2]}))


extents = st.lists(st.integers(-2, 2**40), max_size=9)
shape = near(min=extents, opt=extents, max=extents, values=st.booleans())
profile = st.dictionaries(st.sampled_from(["t0", "x", ""]), shape, max_size=3)
spec = near(
    profiles=st.lists(profile, max_size=3),
    precision=st.sampled_from(["as_is", "fp16", ""]),
    optimization_level=st.integers(-1, 6),
    workspace_bytes=st.integers(-1, 2**70),
)
options = near(
    run_timeout_s=st.floats(),
    queue_timeout_s=st.integers(),
    priority=st.integers(-200, 200),
    labels=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    fallback=st.lists(st.one_of(st.just("existing"), near(spec=spec)), max_size=3),
    retry=st.booleans(),
)
target = near(
    builder=st.sampled_from(["tensorrt_rtx", "tensorrt"]),
    builder_version=st.text(max_size=8),
    gpu=st.text(max_size=8),
    compute_capabilities=st.lists(st.sampled_from(["8.9", "7.5", "9.0", "x"]), max_size=4),
    os=st.just("linux"),
)


@pytest.fixture(scope="module")
def model(shared: Server) -> str:
    return Api(shared).upload(open_relus())


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(body=st.one_of(anything, near(model=st.just(UNKNOWN), spec=spec, options=options, target=target)))
def test_no_submit_is_a_failure_of_ours(shared: Server, body: Any) -> None:
    _assert_answered(shared, json.dumps(body).encode())


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(spec=spec, options=options, target=target)
def test_no_spec_for_a_model_that_is_here_is_a_failure_of_ours(
    shared: Server, model: str, spec: Any, options: Any, target: Any
) -> None:
    """The model's open axis must have a profile, and there is one more that is never right: nothing is built."""
    wrong = {"t0": {"min": [2, 3], "opt": [1, 3], "max": [1, 3]}}
    if isinstance(spec, dict):
        given = spec.get("profiles")
        spec = {**spec, "profiles": [*(given if isinstance(given, list) else []), wrong]}
    _assert_answered(shared, json.dumps({"model": model, "spec": spec, "options": options, "target": target}).encode())


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(raw=st.binary(max_size=200))
def test_no_bytes_are_a_failure_of_ours(shared: Server, raw: bytes) -> None:
    _assert_answered(shared, raw)


_clients: dict[str, Api] = {}


def _assert_answered(server: Server, content: bytes) -> None:
    api = _clients.setdefault(server.url, Api(server))  # one connection for thousands of examples
    answer = api.http.post("/v1/builds", content=content, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == PROBLEM
    body = answer.json()
    assert CODES[body["code"]].status == answer.status_code
    assert body["remedy"]

"""Which engine is right and why two differ, asked of a real service."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from tests.api.seeded import Seed, ask, seeded
from tests.conftest import Server
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge.cli.main import app
from trtforge.contract.engines import Manifest

WIDER = SPEC.model_copy(
    update={
        "profiles": ({**SPEC.profiles[0], "x": SPEC.profiles[0]["x"].model_copy(update={"max": (8, 3)})},),
        "optimization_level": 5,
    }
)
BOUND = TARGET.model_copy(
    update={
        "builder": "tensorrt",
        "gpu": "NVIDIA L40S",
        "driver": "570.86",
        "cuda": "12.8",
        "compute_capabilities": ("8.9",),
    }
)
SEEDS: list[Seed] = [(MODEL, SPEC, TARGET, b"one"), (MODEL, WIDER, TARGET, b"two"), (MODEL, SPEC, BOUND, b"three")]

Found = tuple[Server, list[Manifest]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    server, manifests = seeded(tmp_path_factory.mktemp("find") / "data", SEEDS)
    server.start()
    yield server, manifests
    server.stop()


def test_a_diff_names_what_differs_in_groups(found: Found):
    server, (one, wider, _) = found
    answer = ask(server, "GET", f"/v1/engines/{one.engine_key}/diff/{wider.engine_key}")
    assert answer.status_code == 200
    assert answer.json() == {
        "a": one.engine_key,
        "b": wider.engine_key,
        "same_plan": False,
        "groups": {
            "shapes": [{"field": "profiles.0.x.max.0", "a": 4, "b": 8}],
            "options": [{"field": "optimization_level", "a": 3, "b": 5}],
        },
    }
    itself = ask(server, "GET", f"/v1/engines/{one.engine_key}/diff/{one.engine_key}").json()
    assert (itself["same_plan"], itself["groups"]) == (True, {})


def test_a_diff_with_an_engine_that_is_not_there(found: Found):
    server, (one, *_) = found
    answer = ask(server, "GET", f"/v1/engines/{one.engine_key}/diff/sha256:{'0' * 64}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "0" * 64 in answer.json()["detail"]


def test_the_command_says_it_in_words(found: Found):
    server, (one, wider, bound) = found
    told = CliRunner().invoke(app, ["diff", one.engine_key, wider.engine_key, "--url", server.url]).stdout
    assert "  max of `x` axis 0: 4 → 8\n" in told
    told = CliRunner().invoke(app, ["diff", bound.engine_key, one.engine_key, "--url", server.url, "--json"]).stdout
    assert {"field": "driver", "a": "570.86", "b": None} in json.loads(told)["groups"]["target"]

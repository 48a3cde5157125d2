"""Manifests: kept in memory within bounds, and in the shape that is published."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator, ValidationError

from app.api.schemas import manifest_schema
from app.builds.manifests import Manifests
from app.builds.parts import Parts
from app.builds.removal import remove
from tests.api.seeded import ask, parts_of, seed, seeded
from tests.api.test_find import SEEDS
from tests.conftest import Server, light
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.engines import Manifest


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = parts_of(tmp_path / "data")
    yield made
    made.store.close()
    made.database.close()


async def all_of(manifests: Manifests, keys: list[str]) -> list[bytes | None]:
    return [await manifests.get(key) for key in keys]


def test_what_is_kept_is_bounded_and_what_is_dropped_comes_back(parts: Parts):
    keys = [m.engine_key for m in seed(parts, SEEDS)]
    manifests = Manifests(parts, most_bytes=3000, fresh_s=60)  # two of them, not three
    first = asyncio.run(all_of(manifests, keys))
    assert all(first)
    assert 0 < manifests.size <= 3000
    assert asyncio.run(all_of(manifests, keys)) == first
    assert manifests.size <= 3000
    assert asyncio.run(all_of(manifests, ["sha256:" + "0" * 64])) == [None]


def test_a_manifest_is_served_from_memory_while_it_is_fresh_and_not_after(parts: Parts):
    key = seed(parts, SEEDS)[0].engine_key
    fresh, stale = Manifests(parts, fresh_s=60), Manifests(parts, fresh_s=0)
    assert asyncio.run(all_of(fresh, [key])) == asyncio.run(all_of(stale, [key]))
    remove(parts, key)  # by another process, say
    assert asyncio.run(all_of(fresh, [key])) != [None]
    assert asyncio.run(all_of(stale, [key])) == [None]
    fresh.forget(key)
    assert asyncio.run(all_of(fresh, [key])) == [None]
    assert (fresh.size, stale.size) == (0, 0)


def test_the_published_schema_takes_every_manifest_and_refuses_others(parts: Parts):
    schema = Draft202012Validator(manifest_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)
    Draft202012Validator.check_schema(manifest_schema())
    for one in seed(parts, SEEDS):
        kept = parts.store.manifest(one.engine_key)
        assert kept is not None
        schema.validate(kept.model_dump(mode="json"))
    good = one.model_dump(mode="json")
    for field in Manifest.model_fields:
        name = "schema" if field == "schema_version" else field
        with pytest.raises(ValidationError):
            schema.validate({k: v for k, v in good.items() if k != name})
    for wrong in ({"schema": 2}, {"engine_key": "sha256:abc"}, {"plan": {"digest": good["engine_key"]}}):
        with pytest.raises(ValidationError):
            schema.validate(good | wrong)


def test_the_manifest_of_a_real_build_keeps_to_the_schema_that_the_service_publishes(server: Server):
    answer = httpx.get(f"{server.url}/v1/schemas/manifest")
    assert answer.headers["Content-Type"] == "application/schema+json"
    with Client(server.url) as client:
        model = client.upload(light("squeezenet"))
        build = client.submit(Submit(model=model.digest), wait_s=60).build
        assert build
        assert build.engine
        stored = httpx.get(f"{server.url}/v1/engines/{build.engine_key}").json()
    Draft202012Validator(answer.json()).validate(stored)


def test_from_memory_the_answer_is_that_of_the_route_also_when_it_refuses(tmp_path: Path):
    token = "a-token-of-the-tests"
    server, [one, *_] = seeded(tmp_path / "data", SEEDS, admin_token=token)
    server.start()
    try:
        address, good = f"/v1/engines/{one.engine_key}", {"Authorization": f"Bearer {token}"}
        answers = [ask(server, "GET", address, headers=good) for _ in range(3)]  # the first comes from the route
        first = {k: v for k, v in answers[0].headers.items() if k not in ("date", "x-request-id")}
        for answer in answers:
            assert (answer.status_code, answer.content) == (200, answers[0].content)
            assert {k: v for k, v in answer.headers.items() if k not in ("date", "x-request-id")} == first
            assert answer.headers["X-Request-Id"]
        for bad in ({}, {"Authorization": "Bearer another-token-of-theirs"}, {"Authorization": token}):
            assert ask(server, "GET", address, headers=bad).status_code == 401
        assert ask(server, "DELETE", address, headers=good).status_code == 204
        assert ask(server, "GET", address, headers=good).status_code == 404
    finally:
        server.stop()

"""Names resolve at call time, change at once for everyone, and keep their history."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.domain.key import engine_key
from app.store.local import LocalStore
from app.worker.locks import try_lock
from tests.api.seeded import ask, seeded
from tests.api.test_find import SEEDS, WIDER
from tests.conftest import Server
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge.cli.main import app
from trtforge.client import Client
from trtforge.contract.engines import Manifest
from trtforge.contract.target import TargetSelector
from trtforge.errors import ServiceError

Found = tuple[Server, list[Manifest]]
SPECS = {"one": SPEC.model_dump(mode="json"), "wider": WIDER.model_dump(mode="json")}
TOKEN = {"Authorization": "Bearer a-token-of-the-tests"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    server, manifests = seeded(tmp_path_factory.mktemp("names") / "data", SEEDS, admin_token="a-token-of-the-tests")
    server.start()
    yield server, manifests
    server.stop()


def set_name(found: Found, name: str, spec: str = "one", **other: Any) -> httpx.Response:
    want = {"model": MODEL, "spec": SPECS[spec]} | other
    return ask(found[0], "PUT", f"/v1/names/{name}", json=want, headers=TOKEN)


def get(found: Found, path: str, **params: str) -> httpx.Response:
    return ask(found[0], "GET", f"/v1/names/{path}", params=params, headers=TOKEN)


def test_a_name_is_set_changed_removed_and_remembered(found: Found):
    first = set_name(found, "detector")
    assert (first.status_code, first.headers["Location"]) == (201, "/v1/names/detector")
    assert first.json()["policy"] == "exact"
    again = set_name(found, "detector")
    assert (again.status_code, again.json()) == (200, first.json())  # the same want is no new version
    second = set_name(found, "detector", "wider", policy="portable")
    assert (second.status_code, second.json()["version"]) == (200, 2)
    assert get(found, "detector").json() == second.json()
    assert ask(found[0], "DELETE", "/v1/names/detector", headers=TOKEN).status_code == 204
    assert get(found, "detector").status_code == 404
    assert set_name(found, "detector").json()["version"] == 4
    kept = get(found, "detector/history").json()["items"]
    assert [(v["version"], v["want"] and v["want"].get("policy")) for v in kept] == [
        (4, "exact"),
        (3, None),
        (2, "portable"),
        (1, "exact"),
    ]
    assert {v["by"] for v in kept} == {"admin"}


def test_names_are_listed_page_by_page(found: Found):
    for number in range(3):
        set_name(found, f"listed-{number}")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = ask(found[0], "GET", "/v1/names", params={"limit": 2} | cursor, headers=TOKEN).json()
        seen += [one["name"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [name for name in seen if name.startswith("listed")] == ["listed-2", "listed-1", "listed-0"]
    assert len(seen) == len(set(seen))


def test_what_a_name_means_depends_on_who_asks(found: Found):
    _, (one, _, bound) = found
    set_name(found, "asks", target={"builder": "tensorrt_rtx"})
    portable = get(found, "asks/plan", gpu="NVIDIA L40S", driver="580.12", compute_capability="8.9")
    assert (portable.status_code, portable.content) == (200, b"one")
    assert portable.headers["ETag"] == f'"{one.plan.digest}"'
    assert portable.headers["Content-Location"] == f"/v1/engines/{one.engine_key}/plan"
    mine = {"builder": "tensorrt", "gpu": "NVIDIA L40S", "driver": "570.86"}
    assert get(found, "asks/plan", **mine).content == b"three"
    ready = ask(found[0], "GET", "/v1/names/asks/ready", params=mine)  # without a token
    assert (ready.status_code, ready.headers["Content-Location"]) == (204, f"/v1/engines/{bound.engine_key}")
    for other in ({"compute_capability": "9.0"}, mine | {"driver": "580.12"}):
        assert get(found, "asks/plan", **other).json()["code"] == "no_compatible_engine"
        probe = ask(found[0], "GET", "/v1/names/asks/ready", params=other)
        assert (probe.status_code, "candidates" in probe.json()) == (404, False)
    set_name(found, "asks", target={"builder": "tensorrt_rtx"}, policy="same_compute_capability")
    assert get(found, "asks/plan", **mine | {"driver": "580.12"}).content == b"three"


def test_a_probe_sees_the_build_that_will_serve_it(found: Found):
    server, _ = found
    spec = SPEC.model_copy(update={"optimization_level": 2})
    want = {"model": MODEL, "spec": spec.model_dump(mode="json"), "target": {"builder": "tensorrt_rtx"}}
    assert ask(server, "PUT", "/v1/names/coming", json=want, headers=TOKEN).status_code == 201
    assert ask(server, "GET", "/v1/names/coming/ready").status_code == 404
    [known] = ask(server, "GET", "/v1/targets", headers=TOKEN).json()["items"]
    target = TARGET.model_validate(known["target"])
    lock = try_lock(LocalStore(server.data / "store").key_lock(engine_key(MODEL, spec, target)), {})
    assert lock
    with lock:  # so the build waits
        build = ask(server, "POST", "/v1/builds", json=want, headers=TOKEN).json()["build"]
        probe = ask(server, "GET", "/v1/names/coming/ready", params={"compute_capability": "8.9"})
        assert probe.status_code == 503
        assert int(probe.headers["Retry-After"]) > 0
        assert probe.json()["build"]["id"] == build["id"]
        assert "progress" in probe.json()["build"]
        other = ask(server, "GET", "/v1/names/coming/ready", params={"compute_capability": "9.0"})
        assert other.status_code == 404
        assert ask(server, "DELETE", f"/v1/builds/{build['id']}", headers=TOKEN).status_code == 202
    assert ask(server, "GET", "/v1/names/coming/ready").status_code == 404


@pytest.mark.parametrize(
    ("name", "want", "code"),
    [
        ("no model", {"model": "sha256:" + "0" * 64}, "invalid_request"),
        ("nomodel", {"model": "sha256:" + "0" * 64}, "model_unknown"),
        ("noprofile", {"model": MODEL}, "profile_required"),
        ("nogpu", {"model": MODEL, "spec": SPECS["one"], "target": {"gpu": "NVIDIA T4"}}, "target_unknown"),
        ("nopolicy", {"model": MODEL, "policy": "any"}, "invalid_request"),
    ],
)
def test_a_name_stands_for_what_can_be_built(found: Found, name: str, want: dict[str, Any], code: str):
    answer = ask(found[0], "PUT", f"/v1/names/{name}", json=want, headers=TOKEN)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert get(found, "nomodel").status_code == 404


def test_unknown_names_and_missing_tokens(found: Found):
    for path in ("", "/ready", "/plan", "/history"):
        assert get(found, f"never{path}").status_code == 404
    assert ask(found[0], "DELETE", "/v1/names/never", headers=TOKEN).status_code == 404
    for path in ("", "/plan", "/history"):
        assert ask(found[0], "GET", f"/v1/names/never{path}").status_code == 401


def test_changes_at_once_are_one_after_the_other(found: Found):
    """Readers see one want or the other, never a mixture, and no version is lost."""
    set_name(found, "raced")

    def change(number: int) -> int:
        return set_name(found, "raced", "wider" if number % 2 else "one").status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(change, range(24))) == {200}
        seen = get(found, "raced").json()
    versions = get(found, "raced/history").json()["items"]
    assert [v["version"] for v in versions] == list(range(len(versions), 0, -1))
    assert seen["version"] == len(versions)
    levels = [v["want"]["spec"]["optimization_level"] for v in versions]
    assert all(a != b for a, b in pairwise(levels))


def trtforge(found: Found, *words: str) -> str:
    ended = CliRunner().invoke(app, [*words, "--url", found[0].url, "--token", "a-token-of-the-tests"])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_the_commands(found: Found):
    shapes = ["--minShapes", "x:1x3,ids:1", "--optShapes", "x:2x3,ids:2", "--maxShapes", "x:4x3,ids:4"]
    asked = [MODEL, *shapes, "--workspace", "1GiB", "--target", "builder=tensorrt_rtx"]
    told = trtforge(found, "name", "set", "told", *asked)
    assert "told version 1: model sha256:abab" in told
    assert "told version 1" in trtforge(found, "name", "list")
    assert "policy exact" in trtforge(found, "name", "show", "told")
    assert "version 1 by admin at " in trtforge(found, "name", "show", "told", "--history")
    resolved = trtforge(found, "resolve", *asked, "--target", "compute_capabilities=8.9")
    assert f"engine {found[1][0].engine_key} (policy exact)" in resolved
    assert "builder tensorrt → tensorrt_rtx" in resolved
    trtforge(found, "name", "remove", "told")
    assert "told" not in trtforge(found, "name", "list")


def test_a_machine_fetches_by_name_and_waits_until_the_name_means_something(found: Found, tmp_path: Path):
    goal = tmp_path / "model.plan"
    rtx = ["--target", "builder_version=1.7.1.116", "--target", "compute_capabilities=8.9"]
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(trtforge, found, "fetch", "--name", "awaited", "--wait", "60", "-o", str(goal), *rtx)
        set_name(found, "awaited", target={"builder": "tensorrt_rtx"})
        assert "(verified)" in fetched.result(90)
    assert goal.read_bytes() == b"one"
    with Client(found[0].url) as client:  # a probe needs no token
        machine = TargetSelector(builder="tensorrt", gpu="NVIDIA L40S", driver="570.86")
        assert client.named("awaited", machine) == found[1][2].engine_key
        other = TargetSelector(builder="tensorrt", gpu="NVIDIA T4", compute_capabilities=("7.5",), driver="570.86")
        for name, asking, code in (("awaited", other, "no_compatible_engine"), ("never", machine, "not_found")):
            with pytest.raises(ServiceError) as refused:
                client.named(name, asking)
            assert refused.value.code == code


@pytest.mark.parametrize("words", [[], ["sha256:00", "--name", "one"]])
def test_fetch_takes_a_key_or_a_name(words: list[str]):
    ended = CliRunner().invoke(app, ["fetch", *words])
    assert ended.exit_code == 2
    assert "one of the two" in ended.output

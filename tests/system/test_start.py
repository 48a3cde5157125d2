"""What the server refuses to start with, and who may ask it what."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import TLS, Server, free_port
from tests.system.api import PROBLEM, Api
from tests.system.conftest import running
from tests.system.models import relus

TOKEN = "a-token-of-some-length"


def refused(folder: Path, *options: str, **settings: str) -> str:
    """Start a server that must give up at once; return what it said."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRTFORGE_")}
    env |= {f"TRTFORGE_{k.upper()}": v for k, v in {"lock_dir": str(folder / "locks"), **settings}.items()}
    command = [sys.executable, "-m", "trtforge", "serve", "--port", str(free_port()), *options]
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=30)
    assert ended.returncode not in (0, -9), ended
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_second_server_on_the_same_sqlite_is_refused_with_the_reason(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server()
    words = refused(tmp_path, data_dir=str(server.data))
    assert "another trtforge server uses the SQLite database" in words
    assert "TRTFORGE_DATABASE_URL" in words
    assert Api(server).built(relus())["state"] == "succeeded"  # the first one is none the worse


def test_a_database_that_is_not_there_is_refused_with_the_reason(tmp_path: Path) -> None:
    url = f"postgresql://nobody:password@127.0.0.1:{free_port()}/none"
    words = refused(tmp_path, data_dir=str(tmp_path / "data"), database_url=url)
    assert "refused" in words
    assert "password" not in words


def test_a_data_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file" in refused(tmp_path, data_dir=str(tmp_path / "file"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_reach_needs_a_token(host: str, tmp_path: Path) -> None:
    words = refused(tmp_path, "--host", host, data_dir=str(tmp_path / "data"))
    assert "TRTFORGE_ADMIN_TOKEN" in words


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    words = refused(tmp_path, data_dir=str(tmp_path / "data"), admin_token="short")
    assert "TRTFORGE_ADMIN_TOKEN" in words
    assert "16 characters" in words
    assert "'short'" not in words


def test_a_taken_port_is_refused(shared: Server, tmp_path: Path) -> None:
    words = refused(tmp_path, "--port", str(shared.port), data_dir=str(tmp_path / "data"))
    assert "Take another port" in words


def test_a_wrong_setting_is_refused_by_its_name(tmp_path: Path) -> None:
    assert "TRTFORGE_SLOTS" in refused(tmp_path, data_dir=str(tmp_path / "data"), slots="none")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from running(tmp_path_factory.mktemp("guarded"), admin_token=TOKEN)


ROUTES = [
    ("GET", "/v1/targets"),
    ("GET", "/v1/builds"),
    ("POST", "/v1/builds"),
    ("GET", "/v1/builds/bld_1"),
    ("GET", "/v1/builds/bld_1/events"),
    ("GET", "/v1/builds/bld_1/log"),
    ("DELETE", "/v1/builds/bld_1"),
    ("GET", "/v1/requests/req_1"),
    ("DELETE", "/v1/requests/req_1"),
    ("GET", "/v1/engines"),
    ("GET", f"/v1/engines/sha256:{'0' * 64}"),
    ("GET", f"/v1/engines/sha256:{'0' * 64}/plan"),
    ("GET", f"/v1/plans/sha256:{'0' * 64}"),
    ("GET", f"/v1/models/sha256:{'0' * 64}"),
    ("PUT", f"/v1/models/sha256:{'0' * 64}"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}"])
def test_without_the_token_nothing_is_told(guarded: Server, method: str, path: str, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    answer = httpx.request(method, guarded.url + path, headers=headers, verify=TLS)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == PROBLEM
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["code"] == "unauthorized"


def test_probes_are_open(guarded: Server) -> None:
    for path, expected in (
        ("/livez", 200),
        ("/readyz", 200),
        ("/readyz?verbose", 200),
        (f"/v1/engines/sha256:{'0' * 64}/ready", 404),
    ):
        assert httpx.get(guarded.url + path).status_code == expected


def test_with_the_token_everything_works_and_it_is_not_logged(guarded: Server) -> None:
    api = Api(guarded, TOKEN)
    build = api.built(relus())
    assert build["state"] == "succeeded"
    assert httpx.get(f"{guarded.url}/v1/engines/{build['engine_key']}/ready").status_code == 204
    assert api.http.get("/v1/targets", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
    assert TOKEN not in guarded.log.read_text()


def test_requests_of_one_token_do_not_count_as_others(guarded: Server) -> None:
    api = Api(guarded, TOKEN)
    model = api.upload(relus(2000))
    build = api.submit(model)["build"]["id"]
    api.submit(model)
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    cancelled = api.ended(build)
    assert (cancelled["state"], cancelled["cancel"]["by"]) == ("cancelled", "admin")

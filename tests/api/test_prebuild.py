"""Names that are ready before the service is."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.builds.prebuild import read_list
from app.errors import NotReady
from app.worker.locks import try_lock
from tests.conftest import Server, light

LIST = """
names:
  classifier:
    model: models/squeezenet.onnx
    spec: {optimization_level: 1}
"""


def test_the_service_is_ready_when_its_names_are(make_server: Callable[..., Server], tmp_path: Path):
    (tmp_path / "models").mkdir()
    shutil.copy(light("squeezenet"), tmp_path / "models/squeezenet.onnx")
    listed = tmp_path / "prebuild.yaml"
    listed.write_text(LIST)
    device = try_lock(tmp_path / "data-locks/cpu-0.lock", {})
    assert device
    with device:  # so the build waits
        server = make_server(ready=False, prebuild=str(listed), slots="1")
        until(server, lambda told: told["prebuild"].get("classifier", {}).get("waiting_for") == "device")
        waiting = httpx.get(f"{server.url}/readyz?verbose")
        assert waiting.status_code == 503
        assert waiting.json()["checks"]["prebuild"].startswith("0 of 1 names are ready: classifier queued")
        assert set(waiting.json()["reasons"]) == {"prebuild"}
        assert httpx.get(f"{server.url}/v1/names/classifier/ready").status_code == 503
    server.until_ready()
    assert httpx.get(f"{server.url}/readyz?verbose").json()["prebuild"] == {"classifier": {"state": "ready"}}
    assert httpx.get(f"{server.url}/v1/names/classifier/ready").status_code == 204
    assert server.stop() == 0
    again = make_server(prebuild=str(listed))  # nothing is built twice
    assert len(httpx.get(f"{again.url}/v1/builds").json()["items"]) == 1
    assert httpx.get(f"{again.url}/v1/names/classifier").json()["version"] == 1


def test_a_name_that_cannot_be_built_keeps_the_service_from_being_ready(
    make_server: Callable[..., Server], tmp_path: Path
):
    (tmp_path / "prebuild.yaml").write_text("names: {broken: {model: missing.onnx}}")
    server = make_server(ready=False, prebuild=str(tmp_path / "prebuild.yaml"))
    until(server, lambda told: told["prebuild"].get("broken", {}).get("state") == "failed")
    told = httpx.get(f"{server.url}/readyz").json()
    assert "broken failed (There is no file" in told["reasons"]["prebuild"]


def until(server: Server, reached: Callable[[dict[str, dict[str, dict[str, str]]]], bool]) -> None:

    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if reached(httpx.get(f"{server.url}/readyz?verbose").json()):
                return
        except httpx.TransportError:
            assert server.process
            assert server.process.poll() is None, server.log.read_text()
        time.sleep(0.05)
    raise AssertionError(server.log.read_text())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("names: [", "is not YAML"),
        ("names: {a: {}}", "names.a.model: Field required"),
        ("names: {a b: {model: x}}", "names.a b"),
        ("names: {a: {model: x, presicion: fp16}}", "names.a.presicion: Extra inputs"),
        ("- a", "TRTFORGE_PREBUILD"),
    ],
)
def test_a_list_that_is_wrong_is_refused_at_start(tmp_path: Path, text: str, words: str):
    path = tmp_path / "prebuild.yaml"
    path.write_text(text)
    with pytest.raises(NotReady, match="TRTFORGE_PREBUILD") as caught:
        read_list(path)
    assert words in str(caught.value)


def test_without_a_list_nothing_is_asked_for(tmp_path: Path):
    assert read_list(None) == {}
    with pytest.raises(NotReady, match="cannot be read"):
        read_list(tmp_path / "none.yaml")


def test_a_service_with_a_wrong_list_does_not_start(make_server: Callable[..., Server], tmp_path: Path):
    server = make_server(ready=False, prebuild=str(tmp_path / "none.yaml"))
    assert server.process
    assert server.process.wait(60) == 2
    assert "TRTFORGE_PREBUILD" in server.log.read_text()

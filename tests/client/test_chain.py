"""`trtforge build --fallback …` against the real service: it says what failed, follows what comes next, and what differs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.conftest import Server, ocr
from tests.system.models import SLOW, relus
from trtforge.cli.main import app
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.events import Failed, Succeeded
from trtforge.contract.spec import BuildOptions

LOW = "x:1x3x32x64"  # the recogniser needs 48 rows
HIGH = json.dumps({"profiles": [{"x": {corner: [1, 3, 48, 64] for corner in ("min", "opt", "max")}}]})


def trtforge(service: Server, *words: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), env={"TRTFORGE_URL": service.url})


def test_a_failed_build_is_said_and_the_next_is_followed_and_again_when_it_is_known(service: Server) -> None:
    ask = ("build", ocr("rec"), "--shapes", LOW, "--no-fetch", "--fallback", HIGH)
    ended = trtforge(service, *ask)
    assert ended.exit_code == 0, ended.stderr
    first, following = _builds(service)
    assert f"build {first} created" in ended.stdout
    assert f"build {first} failed (" in ended.stdout
    assert f"falling back to build {following}" in ended.stdout
    assert ended.stdout.count("started on") == 2
    assert "This is a fallback" in ended.stdout
    assert "profiles.0.x.max.2 is 48, asked was 32" in ended.stdout
    assert f"then   {following}," in trtforge(service, "show", first).stdout
    assert f"after  {first}," in trtforge(service, "show", following).stdout

    again = trtforge(service, *ask)
    assert again.exit_code == 0, again.stderr
    assert f"build {first} failed before; there is an engine to fall back to" in again.stdout

    told = json.loads(trtforge(service, *ask, "--json").stdout.splitlines()[-1])
    assert (told["state"], told["disposition"], told["served"]["fallback"]) == ("succeeded", "known_failure", True)

    other = trtforge(service, *ask[:-2], "--fallback", HIGH.replace("64", "96"))
    assert other.exit_code == 0, other.stderr
    assert f"build {first} failed before; falling back to build " in other.stdout
    assert other.stdout.count("started on") == 1


def _builds(service: Server) -> list[str]:
    """Return the builds of the recogniser, oldest first."""
    with Client(service.url) as client:
        return [b.id for b in client.builds(model=client.upload(ocr("rec")).digest)][::-1]


def test_a_timeout_is_said_and_nothing_left_is_a_failure(service: Server, tmp_path: Path) -> None:
    model = tmp_path / "slow.onnx"
    model.write_bytes(relus(SLOW))
    step = '{"optimization_level": 1}'
    ended = trtforge(service, "build", model, "--no-fetch", "--run-timeout", "1", "--fallback", step)
    assert ended.exit_code == 1
    assert "is left (run_timeout); falling back to build " in ended.stdout
    assert "run_timeout:" in ended.stderr


@pytest.mark.parametrize("words", ["exist", "{", '{"nope": 1}', '{"optimization_level": "x"}'])
def test_a_fallback_that_is_none_is_said_before_anything_is_sent(tmp_path: Path, words: str) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"not looked at")
    ended = CliRunner().invoke(app, ["build", str(model), "--fallback", words, "--url", "http://127.0.0.1:9"])
    assert ended.exit_code == 2
    assert "fallback" in ended.stderr


def test_the_client_follows_a_request_through_its_builds(service: Server, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(relus(SLOW))
    with Client(service.url) as client:
        options = BuildOptions.model_validate({"run_timeout_s": 1, "fallback": [{"spec": {"optimization_level": 1}}]})
        asked = client.submit(Submit(model=client.upload(model).digest, options=options))
        seen = list(client.follow(asked.request_id))
        request = client.wait(asked.request_id)
        assert request.state == "failed"
        assert tuple(dict.fromkeys(build for build, _ in seen)) == request.builds
        assert len(request.builds) == 2
        assert not any(isinstance(event, Succeeded | Failed) for _, event in seen)  # it left both before their end
        model.write_bytes(relus())
        asked = client.submit(Submit(model=client.upload(model).digest))
        *_, (_, last) = client.follow(asked.request_id)
        assert isinstance(last, Succeeded)
        assert client.wait(asked.request_id).served

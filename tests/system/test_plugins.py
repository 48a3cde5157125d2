"""Plugin libraries of the operator's list: compiled here, loaded by the real builder in its sandbox, hashed into the key."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from onnx import TensorProto, helper
from typer.testing import CliRunner

from app.builds.plugins import Plugins, PluginUnusable
from app.errors import NotReady
from tests.conftest import Server, light
from trtforge.cli.main import app
from trtforge.client import Client
from trtforge.contract.builds import Failure, Request, Submit
from trtforge.contract.models import PreflightAsk
from trtforge.contract.spec import BuildSpec
from trtforge.errors import ServiceError

SOURCE = Path(__file__).parents[1] / "worker/creator.cpp"


def library(path: Path, creator: str) -> str:
    """Compile a library that brings a creator of this name; return its sha256."""
    found = shutil.which("c++")
    command = [found] if found else [sys.executable, "-m", "ziglang", "c++"]
    words = ["-shared", "-fPIC", "-O1", f'-DNAME="{creator}"', "-o", str(path), str(SOURCE)]
    subprocess.run([*command, *words], check=True, timeout=300)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def written(path: Path, **plugins: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({"plugins": plugins}))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of three libraries: one sound, one that lacks a creator, one that is no library."""
    folder = tmp_path_factory.mktemp("plugins")
    sound = {"path": "sound.so", "sha256": library(folder / "sound.so", "Nonsense"), "creators": ["Nonsense"]}
    (folder / "text.so").write_text("not a library")
    text = {"path": "text.so", "sha256": hashlib.sha256(b"not a library").hexdigest()}
    short = {"path": "short.so", "sha256": library(folder / "short.so", "Other"), "creators": ["Other", "Missing"]}
    written(folder / "list.yaml", sound=sound, text=text, short=short)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("served") / "data", plugins=str(folder / "list.yaml")).start()
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def nonsense(path: Path) -> Path:
    """A model with one operator of a domain of its own, which only a plugin can be."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Nonsense", ["x"], ["y"], domain="own")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def built(client: Client, model: Path, *plugins: str) -> Request:
    asked = Submit(model=client.upload(model).digest, spec=BuildSpec(plugins=plugins))
    return client.wait(client.submit(asked).request_id)


def failed(client: Client, model: Path, *plugins: str) -> Failure:
    request = built(client, model, *plugins)
    assert request.failure
    return request.failure


def test_a_library_is_loaded_hashed_into_the_key_and_told_in_the_manifest(client: Client, folder: Path):
    model = light("squeezenet")
    plain, with_plugin, again = (built(client, model, *p) for p in ((), ("sound",), ("sound", "sound")))
    assert plain.served
    assert with_plugin.served, with_plugin.failure
    assert again.served
    assert plain.served.engine_key != with_plugin.served.engine_key == again.served.engine_key
    manifest = client.manifest(with_plugin.served.engine_key)
    digest = "sha256:" + hashlib.sha256((folder / "sound.so").read_bytes()).hexdigest()
    creators = [{"name": "Nonsense", "version": "1", "namespace": ""}]
    assert manifest.plugins == ({"name": "sound", "digest": digest, "creators": creators},)
    [used] = manifest.spec.effective.plugins or ()
    assert (used.name, used.digest) == ("sound", digest)
    [target] = client.targets().items
    assert target.capabilities.plugins["sound"] == digest
    assert client.manifest(plain.served.engine_key).plugins == ()
    told = client.diff(plain.served.engine_key, with_plugin.served.engine_key).model_dump_json()
    assert digest in told


def test_commands_name_them(client: Client, tmp_path: Path):
    model = str(light("squeezenet"))
    words = ["build", model, "--plugin", "sound", "--detach", "--json", "--url", client.url]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    request = client.wait(json.loads(told.stdout.splitlines()[-1])["request_id"])
    assert request.served
    assert client.manifest(request.served.engine_key).spec.requested.plugins == ("sound",)
    found = CliRunner().invoke(app, ["resolve", model, "--plugin", "sound", "--url", client.url])
    assert (found.exit_code, request.served.engine_key in found.stdout) == (0, True), found.output


def test_an_operator_without_a_creator_is_named_and_one_with_is_found(client: Client, tmp_path: Path):
    model = nonsense(tmp_path / "m.onnx")
    without = failed(client, model)
    assert without.code == "op_unsupported"
    assert [(n["op"], n["domain"]) for n in without.where["nodes"]] == [("Nonsense", "own")]
    found = failed(client, model, "sound")
    assert "Could not create the plugin" in str(found.native)  # the creator was asked, and this one makes none
    assert "Could not create the plugin" not in str(without.native)
    checked = client.preflight(client.upload(model).digest, PreflightAsk(spec=BuildSpec(plugins=("sound",))))
    assert any("Could not create the plugin" in problem.message for problem in checked.problems)


def test_what_is_not_approved_is_refused_at_once_with_what_is(client: Client):
    digest = client.upload(light("squeezenet")).digest
    path = Submit(model=digest, spec=BuildSpec.model_construct(plugins=("/lib/evil.so",)))
    with pytest.raises(ServiceError) as refused:
        client.submit(path)
    assert refused.value.code == "invalid_request"
    with pytest.raises(ServiceError) as refused:
        client.submit(Submit(model=digest, spec=BuildSpec(plugins=("evil.so",))))
    [problem] = refused.value.problem.errors
    assert (problem.code, problem.where) == ("plugin_unknown", {"plugin": "evil.so"})
    assert "short, sound, text" in problem.remedy
    checked = client.preflight(digest, PreflightAsk(spec=BuildSpec(plugins=("evil.so",))))
    assert [problem.code for problem in checked.problems] == ["plugin_unknown"]


@pytest.mark.parametrize(("name", "says"), [("text", "does not load"), ("short", "does not bring Missing")])
def test_a_library_that_brings_nothing_ends_the_build(client: Client, name: str, says: str):
    failure = failed(client, light("squeezenet"), name)
    assert (failure.code, failure.where["plugin"]) == ("plugin_unusable", name)
    assert says in failure.message
    checked = client.preflight(client.upload(light("squeezenet")).digest, PreflightAsk(spec=BuildSpec(plugins=(name,))))
    assert [problem.code for problem in checked.problems] == ["plugin_unusable"]


def test_a_library_that_changes_after_the_start_is_not_loaded(make_server: Callable[..., Server], tmp_path: Path):
    path = tmp_path / "changing.so"
    one = {"path": str(path), "sha256": library(path, "Nonsense"), "creators": ["Nonsense"]}
    server = make_server(plugins=str(written(tmp_path / "list.yaml", changing=one)))
    library(path, "Changed")
    with Client(server.url) as client:
        failure = failed(client, light("squeezenet"), "changing")
        assert (failure.code, failure.retryable) == ("plugin_unusable", True)
        assert "has changed" in failure.message
        path.unlink()
        gone = failed(client, light("squeezenet"), "changing")
        assert "cannot be copied" in gone.message
        assert str(tmp_path) not in gone.message


def test_a_list_that_is_not_true_is_not_started_with(tmp_path: Path):
    path = tmp_path / "list.yaml"
    (tmp_path / "a.so").write_bytes(b"a")
    right = hashlib.sha256(b"a").hexdigest()
    assert Plugins.read(None).digests == {}
    assert Plugins.read(written(path, a={"path": "a.so", "sha256": right})).digests == {"a": f"sha256:{right}"}
    for listed, says in (
        ({"a": {"path": "a.so", "sha256": "0" * 64}}, "Approve it anew"),
        ({"a": {"path": "gone.so", "sha256": right}}, "cannot be read"),
        ({"a": {"path": "a.so", "sha256": "short"}}, "cannot be used"),
        ({"a/b": {"path": "a.so", "sha256": right}}, "cannot be used"),
        ({"a": {"path": "a.so", "sha256": right, "creator": "X"}}, "cannot be used"),
    ):
        with pytest.raises(NotReady, match=says):
            Plugins.read(written(path, **listed))
    with pytest.raises(NotReady, match="cannot be used"):
        Plugins.read(tmp_path / "none.yaml")


def test_a_pipe_in_place_of_a_list_or_a_library_holds_nobody(tmp_path: Path):
    pipe, library = tmp_path / "pipe", tmp_path / "a.so"
    os.mkfifo(pipe)
    library.write_bytes(b"a library")
    right = hashlib.sha256(b"a library").hexdigest()
    with pytest.raises(NotReady, match="TRTFORGE_PLUGINS"):
        Plugins.read(pipe)
    with pytest.raises(NotReady, match="TRTFORGE_PLUGINS"):
        Plugins.read(written(tmp_path / "list.yaml", a={"path": "pipe", "sha256": right}))
    for content in (b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "odd.yaml").write_bytes(content)
        with pytest.raises(NotReady, match="TRTFORGE_PLUGINS"):
            Plugins.read(tmp_path / "odd.yaml")
    approved = Plugins.read(written(tmp_path / "list.yaml", a={"path": "a.so", "sha256": right}))
    library.unlink()
    os.mkfifo(library)
    with pytest.raises(PluginUnusable, match="no regular file"):
        approved.lay_out([{"name": "a", "digest": f"sha256:{right}"}], tmp_path)

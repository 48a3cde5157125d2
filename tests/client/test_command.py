"""The command without a service: usage, exit codes, what it loads, how further commands join."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.client.scripted import Scripted, answer, problem
from tests.client.wire import MODEL
from trtforge.cli.main import app

RUN = "from trtforge.cli.main import run; run()"


def python(code: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in an interpreter of its own, where nothing is loaded yet."""
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | env)


def trtforge(*words: str | Path, url: str | None = None) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), env={"TRTFORGE_URL": url})


@pytest.fixture
def onnx(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"not looked at by the client")
    return path


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_help_lists_every_command_and_the_exit_codes():
    ended = trtforge("--help")
    assert ended.exit_code == 0
    for name in (
        "build",
        "doctor",
        "watch",
        "show",
        "builds",
        "engines",
        "targets",
        "log",
        "cancel",
        "withdraw",
        "fetch",
        "serve",
    ):
        assert f"  {name} " in ended.stdout
    assert "130 interrupted" in " ".join(ended.stdout.split())


def test_every_command_of_ours_explains_itself_and_takes_json():
    for name in ("build", "watch", "show", "builds", "engines", "targets", "log", "cancel", "withdraw", "fetch"):
        ended = trtforge(name, "--help")
        assert ended.exit_code == 0, ended.stderr
        assert "--json" in ended.stdout
        assert "Exit codes" in ended.stdout


def test_a_build_loads_nothing_of_the_service(onnx: Path, nobody: str):
    code = f"""
import sys
from trtforge.cli.main import app
try:
    app(["build", {str(onnx)!r}, "--url", {nobody!r}])
except SystemExit as end:
    print(end.code, sorted(m for m in sys.modules if m.split(".")[0] in ("app", "fastapi", "sqlalchemy", "onnx")))
"""
    ended = python(code)
    assert ended.stdout.strip() == "3 []"


def test_help_loads_neither_http_nor_pydantic():
    code = f"""
import sys
sys.argv = ["trtforge", "--help"]
try:
    {RUN}
finally:
    print("loaded", [m for m in ("httpx", "pydantic", "app") if m in sys.modules])
"""
    ended = python(code)
    assert "loaded []" in ended.stdout, ended.stderr


def test_further_commands_join_by_entry_points_and_load_when_called(tmp_path: Path):
    record = tmp_path / "extra-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(
        "[trtforge.commands]\nhello = extra_module:hello\nmore = extra_module:more\n"
    )
    (tmp_path / "extra_module.py").write_text(
        "import typer\nprint('loaded')\n"
        "def hello(name: str) -> None:\n    '''Greet.'''\n    print('hello', name)\n"
        "more = typer.Typer()\n"
        "@more.command()\ndef up() -> None: print('up')\n"
        "@more.command()\ndef down() -> None: print('down')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    listed = python(RUN, "--help", PYTHONPATH=path)
    assert "hello" in listed.stdout
    assert "loaded" not in listed.stdout
    assert python(RUN, "hello", "you", PYTHONPATH=path).stdout == "loaded\nhello you\n"
    assert python(RUN, "more", "down", PYTHONPATH=path).stdout == "loaded\ndown\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--minShapes=x:1"], "only --optShapes"),
        (["--shapes=x:1y"], "whole numbers"),
        (["--profile", "{"], "Invalid JSON"),
        (["--workspace", "1 parsec"], "is not a size"),
        (["--label", "team"], "key=value"),
        (["--priority", "1000"], "priority: Input should be less"),
        (["--run-timeout", "-1"], "run_timeout_s"),
        (["--builder", "other"], "tensorrt_rtx"),
        (["-o", "missing/folder/x.plan"], "no folder"),
        (["-o", "/"], "is a directory"),
        (["--bogus"], "No such option"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_sent(onnx: Path, nobody: str, words: list[str], says: str):
    ended = trtforge("build", onnx, *words, "--url", nobody)
    assert ended.exit_code == 2, ended.stderr
    assert says in " ".join(ended.stderr.split())
    assert ended.stdout == ""


def test_no_service_is_exit_code_3_everywhere(onnx: Path, nobody: str):
    for words in (
        ["build", onnx],
        ["builds"],
        ["targets"],
        ["watch", "b"],
        ["fetch", "sha256:" + "0" * 64],
        ["log", "b"],
    ):
        ended = trtforge(*words, url=nobody)
        assert ended.exit_code == 3, (words, ended.stderr)
        assert nobody in ended.stderr
        assert "trtforge serve" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_json_mode_ends_with_a_result_even_without_a_service(onnx: Path, nobody: str):
    ended = trtforge("build", onnx, "--json", "--url", nobody)
    (line,) = ended.stdout.splitlines()
    assert json.loads(line) | {"error": ""} == {
        "type": "result", "exit_code": 3, "state": "unreachable", "disposition": None, "request_id": None,
        "build_id": None, "engine_key": None, "plan": None, "output": None, "error": "",
    }  # fmt: skip


REFUSAL = problem(
    422,
    "profile_required",
    "Input x has open axes. (1 more under errors.)",
    errors=[
        {"code": "profile_required", "where": {"input": "x"}, "message": "Axis N is open.", "remedy": "Give a range."},
        {"code": "option_unsupported", "where": {}, "message": "No [bold]fp4\u001b[2J.", "remedy": "Leave it out."},
    ],
    template=[{"x": {"min": [1, 3], "opt": [1, 3], "max": [8, 3]}}],
)


def test_a_refusal_tells_each_problem_and_a_template_to_paste(onnx: Path):
    with Scripted([answer(body=MODEL), answer("422 X", REFUSAL)]) as server:
        ended = trtforge("build", onnx, "--url", server.url)
    assert ended.exit_code == 2
    told = ended.stderr
    assert "input x: Axis N is open." in told
    assert "→ Give a range." in told
    assert "No [bold]fp4 [2J." in told
    assert "\x1b[2J" not in told
    assert "--minShapes=x:1x3 --optShapes=x:1x3 --maxShapes=x:8x3" in told
    assert """--profile '{"x": {"min": [1, 3], "opt": [1, 3], "max": [8, 3]}}'""" in told


def test_a_refusal_as_json_is_the_services_own_problem(onnx: Path):
    with Scripted([answer(body=MODEL), answer("422 X", REFUSAL)]) as server:
        ended = trtforge("build", onnx, "--json", "--url", server.url)
    result = json.loads(ended.stdout)
    assert (result["state"], result["exit_code"], result["problem"]) == ("refused", 2, REFUSAL)


def test_what_is_asked_for_is_only_what_was_given(onnx: Path):
    submitted = {"disposition": "cached", "request_id": "r", "build": None, "engine": None}
    with Scripted([answer(body=MODEL), answer(body=submitted)]) as server:
        trtforge("build", onnx, "--detach", "--url", server.url)
    assert json.loads(server.asked[1].body) == {"model": MODEL["digest"], "target": {}, "spec": {}, "options": {}}


def test_options_reach_the_wire(onnx: Path):
    submitted = {"disposition": "cached", "request_id": "r", "build": None, "engine": None}
    with Scripted([answer(body=MODEL), answer(body=submitted)]) as server:
        trtforge(
            "build", onnx, "--detach", "--url", server.url, "--shapes=x:1x3", "--workspace", "1GiB", "--label", "a=b=c",
            "--compute-capability", "8.9", "--compute-capability", "12.0", "--builderOptimizationLevel=5", "--retry",
            "--precision", "as_is", "--run-timeout", "60", "--queue-timeout", "70", "--priority", "3",
            "--stall-timeout", "80", "--fallback", '{"optimization_level": 1}', "--fallback", "existing",
        )  # fmt: skip
        assert json.loads(server.asked[1].body) == {
            "model": MODEL["digest"],
            "target": {"compute_capabilities": ["8.9", "12.0"]},
            "spec": {
                "profiles": [{"x": {"min": [1, 3], "opt": [1, 3], "max": [1, 3], "values": False}}],
                "precision": "as_is",
                "optimization_level": 5,
                "workspace_bytes": 1 << 30,
            },
            "options": {
                "run_timeout_s": 60.0,
                "queue_timeout_s": 70.0,
                "stall_timeout_s": 80.0,
                "fallback": [{"spec": {"optimization_level": 1}}, "existing"],
                "priority": 3,
                "labels": {"a": "b=c"},
                "retry": True,
            },
        }

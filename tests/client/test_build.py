"""`trtforge build` and its companions against the real service and the real builder."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.conftest import Server, light, ocr
from trtforge.cli.main import app
from trtforge.client import Client
from trtforge.contract.builds import Submit
from trtforge.contract.engines import Manifest
from trtforge.contract.events import Stored, read_event


def trtforge(service: Server, *words: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), env={"TRTFORGE_URL": service.url})


def sha256(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def result(ended: Result) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert last["type"] == "result"
    return last


def test_build_then_the_same_again(service: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    first = trtforge(service, "build", light("shufflenet"), "--label", "team=vision")
    assert first.exit_code == 0, first.stderr
    plan = tmp_path / "light_shufflenet.plan"
    assert f"digest {sha256(plan)}" in first.stdout
    for words in ("created", "stage build", "phase started", "succeeded", "memory weights", "(verified)"):
        assert words in first.stdout
    again = trtforge(service, "build", light("shufflenet"), "--json", "-o", "again.plan")
    told = result(again)
    assert (told["disposition"], told["state"], told["exit_code"]) == ("cached", "succeeded", 0)
    assert (told["plan"]["digest"], told["output"]) == (sha256(plan), "again.plan")
    assert (tmp_path / "again.plan").read_bytes() == plan.read_bytes()


def test_json_is_every_event_and_the_result(service: Server, tmp_path: Path):
    ended = trtforge(service, "build", light("squeezenet"), "--json", "--no-fetch")
    *told, last = ended.stdout.splitlines()
    events = [read_event(line) for line in told]
    seqs = [e.seq for e in events if isinstance(e, Stored)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert json.loads(told[-1])["type"] == "succeeded"
    assert json.loads(last) | {"request_id": "", "engine_key": "", "plan": ""} == {
        "type": "result", "exit_code": 0, "disposition": "created", "state": "succeeded", "request_id": "", "plan": "",
        "build_id": json.loads(last)["build_id"], "engine_key": "", "output": None,
    }  # fmt: skip
    assert ended.stderr == ""


def test_detach_then_watch_show_log_and_fetch(service: Server, tmp_path: Path):
    detached = trtforge(service, "build", light("zfnet512"), "--detach")
    build_id = detached.stdout.splitlines()[-1]
    watched = trtforge(service, "watch", build_id)
    assert watched.exit_code == 0
    assert f"build  {build_id} succeeded" in watched.stdout
    shown = json.loads(trtforge(service, "show", build_id, "--json").stdout)
    assert shown["state"] == "succeeded"
    key = shown["engine_key"]
    manifest = Manifest.model_validate_json(trtforge(service, "show", key, "--json").stdout)
    assert f"engine {key}" in trtforge(service, "show", key).stdout
    assert "Total Weights Memory" in trtforge(service, "log", build_id).stdout
    fetched = trtforge(service, "fetch", key, "-o", tmp_path / "z.plan")
    assert fetched.exit_code == 0
    assert sha256(tmp_path / "z.plan") == manifest.plan.digest


def test_lists_know_what_was_built(service: Server):
    trtforge(service, "build", light("squeezenet"), "--no-fetch", "--optimization-level", "0", "--label", "list=one")
    (build,) = [
        json.loads(line) for line in trtforge(service, "builds", "--label", "list=one", "--json").stdout.splitlines()
    ]
    assert build["spec"]["effective"]["optimization_level"] == 0
    assert build["engine_key"] in trtforge(service, "builds", "--label", "list=one").stdout
    assert build["engine_key"] in trtforge(service, "engines", "--model", build["model"]).stdout
    assert len(trtforge(service, "builds", "--limit", "1", "--json").stdout.splitlines()) == 1
    targets = [json.loads(line) for line in trtforge(service, "targets", "--json").stdout.splitlines()]
    assert [t["default"] for t in targets] == [True]
    assert "tensorrt_rtx" in trtforge(service, "targets").stdout


def test_a_refusal_gives_profiles_that_build_when_pasted(service: Server, tmp_path: Path):
    model = ocr("det_infer")
    refused = trtforge(service, "build", model)
    assert refused.exit_code == 2
    assert "profile_required" in refused.stderr
    (flags,) = [line.split() for line in refused.stderr.splitlines() if line.strip().startswith("--minShapes")]
    built = trtforge(service, "build", model, *flags, "-o", tmp_path / "det.plan")
    assert built.exit_code == 0, built.stderr
    assert flags[0] in built.stdout  # the manifest repeats the profile


def test_several_problems_are_told_at_once(service: Server):
    refused = trtforge(service, "build", light("squeezenet"), "--optimization-level", "99", "--workspace", "0")
    assert refused.exit_code == 2
    assert refused.stderr.count("→") == 2


def test_what_is_no_model_is_refused(service: Server, tmp_path: Path):
    page = tmp_path / "page.onnx"
    page.write_text("<html>not found</html>")
    refused = trtforge(service, "build", page)
    assert refused.exit_code == 2
    assert "not_an_onnx_model" in refused.stderr


def test_unknown_names_are_refused(service: Server):
    for words in (["watch", "bld_x"], ["show", "bld_x"], ["log", "bld_x"], ["cancel", "bld_x"], ["withdraw", "req_x"]):
        refused = trtforge(service, *words)
        assert refused.exit_code == 2, words
        assert "not_found" in refused.stderr


def test_a_timeout_is_a_failed_build(service: Server):
    ended = trtforge(service, "build", light("densenet121"), "--run-timeout", "1", "--json", "--no-fetch")
    told = result(ended)
    assert (told["exit_code"], told["state"], told["failure"]["code"]) == (1, "failed", "run_timeout")
    assert "run_timeout_s" in ended.stderr


def test_cancel_tells_how_it_ended_and_withdraw_leaves_the_others(service: Server):
    with Client(service.url) as client:
        model = client.upload(light("inception_v2"))
        ask = Submit(model=model.digest)
        first, second = client.submit(ask), client.submit(ask)
        assert (first.disposition, second.disposition) == ("created", "joined")
        assert first.build
        shared = trtforge(service, "cancel", first.build.id)
        assert (shared.exit_code, "build_shared" in shared.stderr) == (2, True)
        left = trtforge(service, "withdraw", second.request_id)
        assert f"request {second.request_id} withdrawn" in left.stdout
        stopped = trtforge(service, "cancel", first.build.id, "--reason", "enough")
        assert stopped.exit_code == 0, stopped.stderr
        assert "cancelled by" in stopped.stdout
        assert "(enough)" in stopped.stdout
        assert trtforge(service, "watch", first.build.id).exit_code == 1
        again = trtforge(service, "cancel", first.build.id)
        assert (again.exit_code, "already_ended" in again.stderr) == (2, True)

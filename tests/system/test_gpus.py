"""Builds on GPUs: a worker and a lock for each, what is on them is seen, and trouble is said. NVML is scripted."""

import os
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT as CONTINUE
from signal import SIGSTOP as STOP

import httpx
import pytest

from tests.conftest import TLS, Server
from tests.nvml import script as nv
from tests.nvml.script import Script
from tests.system.api import Api, Json, children, eventually
from tests.system.models import SLOW, relus

GPU_2, MIG_1, MIG_2 = "GPU-22222222-0000", "MIG-11111111-0000", "MIG-22222222-0000"
ON_GPU = {"device": "gpu", "builder": "tensorrt_rtx", "cancel_grace_s": "0.5"}

Make = Callable[..., Server]


def ready(server: Server) -> Json:
    answer: Json = httpx.get(f"{server.url}/readyz?verbose", verify=TLS).json()
    return answer


def builder_of(server: Server) -> int:
    """Return the process that builds, beside the one that watches the GPUs."""
    (found,) = [c.pid for c in children(server) if "trtforge-watch-" not in c.cwd()]
    return found


def locked(server: Server) -> set[str]:
    return {path.name.removesuffix(".lock.holder") for path in server.lock_dir.glob("*.holder")}


def test_a_build_on_a_gpu_takes_its_lock_and_records_it(make_server: Make, nvml: Script):
    nvml.say(nv.gpu())
    server = make_server(**ON_GPU)
    api = Api(server)
    (target,) = api.get("/v1/targets")["items"]
    assert (target["target"]["gpu"], target["target"]["driver"]) == (None, None)  # a plan of RTX runs on any
    (device,) = target["devices"]
    assert device["slots"] == 1
    assert device["gpu"] == {
        "uuid": nv.H200,
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "memory_bytes": 150754820096,
        "driver": "580.159.04",
        "cuda": "13.0",
        "mig_profile": None,
    }
    assert ready(server)["machine"]["devices"] == {nv.H200: "ok"}

    build = api.start(relus(1200))
    api.building(build)
    os.kill(pid := builder_of(server), STOP)  # until it has been looked at
    stranger = nv.process(nv.H200, os.getpid(), 7 * nv.GIB, 40)  # this test
    nvml.say(nv.gpu(), nv.process(nv.H200, pid, nv.GIB, 20), stranger)
    api.until(build, lambda b: b["progress"]["gpu_utilization"] == 20)
    assert locked(server) == {f"gpu-{nv.H200}"}
    os.kill(pid, CONTINUE)
    assert api.ended(build)["state"] == "succeeded"
    manifest = api.get(f"/v1/engines/{api.build(build)['engine_key']}")
    assert manifest["device"]["uuid"] == nv.H200
    assert manifest["device"]["trouble"] is None
    assert manifest["device"]["neighbours"] == [{"pid": os.getpid(), "memory_bytes": 7 * nv.GIB, "utilization": 40}], (
        manifest["device"]
    )
    assert any("1 other process computed" in warning for warning in manifest["warnings"])


def test_a_builder_works_while_its_gpu_does(make_server: Make, nvml: Script):
    nvml.say(nv.gpu())
    server = make_server(**ON_GPU)
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    pid = builder_of(server)
    os.kill(pid, STOP)  # the processor does nothing
    nvml.say(nv.gpu(percent=95), nv.process(nv.H200, pid, 3 * nv.GIB, 90))
    working = api.until(build, lambda b: b["progress"]["gpu_utilization"] == 95)["progress"]
    assert (working["activity"], working["gpu_memory_bytes"]) == ("working", 3 * nv.GIB)
    nvml.say(nv.gpu(percent=95), nv.process(nv.H200, pid, 3 * nv.GIB, 0), nv.process(nv.H200, os.getpid(), 5, 95))
    idle = api.until(build, lambda b: b["progress"]["activity"] == "idle")["progress"]
    assert idle["gpu_utilization"] == 0  # the others' work is not ours
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    assert api.ended(build)["state"] == "cancelled"


def test_each_gpu_builds_by_itself_and_each_model_is_a_target(make_server: Make, nvml: Script, as_tensorrt: None):
    nvml.say(nv.gpu(), nv.l40s(), nv.gpu(GPU_2))
    server = make_server(builder="auto", cancel_grace_s="0.5")
    api = Api(server)
    assert ready(server)["machine"]["builder"] == "tensorrt"
    items = {item["target"]["gpu"]: item for item in api.get("/v1/targets")["items"]}
    assert {name: item["workers"] for name, item in items.items()} == {"NVIDIA H200": 2, "NVIDIA L40S": 1}
    h200 = items["NVIDIA H200"]
    assert {d["gpu"]["uuid"] for d in h200["devices"]} == {nv.H200, GPU_2}
    assert {
        key: h200["target"][key] for key in ("builder", "compute_capabilities", "driver", "cuda", "mig_profile")
    } == {
        "builder": "tensorrt",
        "compute_capabilities": ["9.0"],
        "driver": "580.159.04",
        "cuda": "13.0",
        "mig_profile": None,
    }
    model, asked = api.upload(relus(SLOW)), {"gpu": "NVIDIA H200"}
    builds = []
    for level in (1, 2, 3):
        body = {"model": model, "target": asked, "spec": {"optimization_level": level}}
        builds.append(api.http.post("/v1/builds", json=body).json()["build"]["id"])
    for build in builds[:2]:
        api.building(build)
    assert locked(server) == {f"gpu-{nv.H200}", f"gpu-{GPU_2}"}
    assert api.build(builds[2])["state"] == "queued"
    seen = {Path(f"/proc/{c.pid}/environ").read_bytes() for c in children(server)}
    shown = {part for one in seen for part in one.split(b"\0") if part.startswith(b"CUDA_VISIBLE_DEVICES=")}
    assert shown == {f"CUDA_VISIBLE_DEVICES={uuid}".encode() for uuid in (nv.H200, GPU_2)}
    for build in reversed(builds):
        assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    for build in builds:
        assert api.ended(build)["state"] == "cancelled"

    built = api.http.post("/v1/builds", json={"model": api.upload(relus()), "target": {"gpu": "NVIDIA L40S"}}).json()
    key = api.ended(built["build"]["id"])["engine_key"]
    manifest = api.get(f"/v1/engines/{key}")
    assert (manifest["target"]["gpu"], manifest["device"]["uuid"]) == ("NVIDIA L40S", nv.L40S)


def test_instances_of_mig_are_devices(make_server: Make, nvml: Script, monkeypatch: pytest.MonkeyPatch):
    nvml.say(nv.gpu(mig=1), nv.instance(MIG_1, nv.H200, 0), nv.instance(MIG_2, nv.H200, 1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", MIG_2)
    server = make_server(**ON_GPU)
    api = Api(server)
    (target,) = api.get("/v1/targets")["items"]
    assert [(d["gpu"]["uuid"], d["gpu"]["mig_profile"]) for d in target["devices"]] == [(MIG_2, "1g.18gb")]
    build = api.start(relus(SLOW))
    api.building(build)
    assert locked(server) == {f"gpu-{MIG_2}"}
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    assert api.ended(build)["state"] == "cancelled"


def test_two_services_on_one_gpu_take_turns(make_server: Make, nvml: Script, tmp_path: Path):
    nvml.say(nv.gpu())
    locks = str(tmp_path / "locks")
    apis = [Api(make_server(name, lock_dir=locks, **ON_GPU)) for name in ("one", "two")]
    first = apis[0].start(relus(SLOW))
    apis[0].building(first)
    second = apis[1].start(relus())
    apis[1].until(second, lambda b: b["waiting_for"] == "device")
    assert apis[0].http.delete(f"/v1/builds/{first}").status_code == 202
    ended, began = apis[0].ended(first), apis[1].ended(second)
    assert began["state"] == "succeeded"
    assert began["started_at"] >= ended["finished_at"]


def test_a_driver_in_trouble_is_said_and_asked_again(make_server: Make, nvml: Script):
    nvml.say(nv.fail("all", nv.NO_PERMISSION))
    server = make_server(ready=False, **ON_GPU)
    eventually(lambda: server.log.read_text().count("may not ask the NVIDIA driver"), 60)
    answer = httpx.get(f"{server.url}/readyz", verify=TLS)
    assert answer.status_code == 503
    assert "may not ask the NVIDIA driver" in answer.json()["reasons"]["worker"]
    assert httpx.get(f"{server.url}/livez", verify=TLS).status_code == 200

    nvml.say(nv.gpu())
    server.until_ready()
    api = Api(server)
    build = api.start(relus(SLOW))
    api.building(build)
    nvml.say(nv.gpu(), nv.fail(nv.H200, nv.GPU_IS_LOST))
    eventually(lambda: "fallen off the bus" in ready(server)["reasons"].get("worker", ""), 30)
    assert api.http.delete(f"/v1/builds/{build}").status_code == 202
    api.ended(build)
    waits = api.start(relus())
    api.until(waits, lambda b: b["waiting_for"] == "device")
    nvml.say(nv.gpu())
    assert api.ended(waits)["state"] == "succeeded"


def test_without_a_token_readiness_names_no_gpu(make_server: Make, nvml: Script):
    nvml.say(nv.gpu())
    server = make_server(**ON_GPU, admin_token=(token := "a-token-of-some-length"))
    url, headers = f"{server.url}/readyz?verbose", {"Authorization": f"Bearer {token}"}
    assert httpx.get(url, headers=headers, verify=TLS).json()["machine"]["devices"] == {nv.H200: "ok"}
    for other in ({}, {"Authorization": f"Bearer {token}x"}, {"Authorization": f"Bearer trtf_{'0' * 40}"}):
        answer = httpx.get(url, headers=other, verify=TLS)
        assert (answer.status_code, answer.json()) == (200, {"ready": True, "reasons": {}})

    nvml.say(nv.gpu(), nv.fail(nv.H200, nv.GPU_IS_LOST))
    eventually(lambda: not ready(server)["ready"], 30)
    assert nv.H200 in httpx.get(url, headers=headers, verify=TLS).json()["reasons"]["worker"]
    answer = httpx.get(url, verify=TLS)
    nameless = {"ready": False, "reasons": {"worker": "the builder takes no builds now"}}
    assert (answer.status_code, answer.json()) == (503, nameless)


def test_a_gpu_that_vanishes_during_a_build_is_recorded(make_server: Make, nvml: Script):
    nvml.say(nv.gpu())
    server = make_server(**ON_GPU)
    api = Api(server)
    build = api.start(relus(1200))
    api.building(build)
    os.kill(pid := builder_of(server), STOP)  # until it has been noticed
    api.until(build, lambda b: b["progress"]["gpu_utilization"] is not None)
    nvml.say()
    eventually(lambda: ready(server)["reasons"], 30)
    api.until(build, lambda b: b["progress"]["gpu_utilization"] is None)
    os.kill(pid, CONTINUE)
    manifest = api.get(f"/v1/engines/{api.ended(build)['engine_key']}")
    assert manifest["device"]["trouble"]
    assert any("in trouble during the build" in warning for warning in manifest["warnings"])


@pytest.mark.parametrize("policy", ["wait", "refuse"])
def test_a_gpu_that_others_use_is_waited_for_or_refused(make_server: Make, nvml: Script, policy: str):
    nvml.say(nv.gpu(), nv.process(nv.H200, os.getpid()))
    api = Api(make_server(require_idle_gpu=policy, **ON_GPU))
    model = relus()
    build = api.start(model)
    if policy == "wait":
        api.until(build, lambda b: b["waiting_for"] == "device")
        nvml.say(nv.gpu())
        assert api.ended(build)["state"] == "succeeded"
        return
    failure = api.ended(build)["failure"]
    assert (failure["code"], failure["retryable"]) == ("gpu_busy", True)
    assert failure["where"]["pids"] == [os.getpid()]
    nvml.say(nv.gpu())
    assert api.built(model)["state"] == "succeeded"  # a busy GPU is not remembered against the model


def test_auto_says_why_it_is_not_tensorrt(make_server: Make, nvml: Script, as_tensorrt: None):
    nvml.say(nv.gpu(name="Tesla V100", capability=(7, 0)))
    machine = ready(make_server())["machine"]
    assert (machine["builder"], machine["devices"]) == ("tensorrt_rtx", {"cpu": "ok"})
    assert "serves compute capability 7.5 and newer, not Tesla V100" in machine["why"]


@pytest.fixture
def as_tensorrt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder that is installed, importable as `tensorrt` too: what is chosen and locked is real, its GPU is not."""
    folder = tmp_path / "as-tensorrt"
    folder.mkdir()
    (folder / "tensorrt.py").write_text("from tensorrt_rtx import *\nfrom tensorrt_rtx import __version__\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

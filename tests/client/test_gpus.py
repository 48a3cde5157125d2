"""What a machine says of its own GPU agrees with what the service says of it: both ask NVML, each in its own way."""

import json
import subprocess
import sys
import time

import pytest

from app.builds.register import target_of
from app.worker.devices import Watch
from app.worker.messages import Probed
from tests.nvml import script as nv
from tests.nvml.script import Script
from tests.worker.models import run
from trtforge.contract.target import TargetSelector

MIG_1, MIG_2 = "MIG-11111111-0000", "MIG-22222222-0000"
ASK = "from trtforge.fingerprint import fingerprint; print(fingerprint().model_dump_json(exclude_none=True))"
PROBED = Probed("tensorrt", "11.4.0.106", "1", [], 3, 5, None, None, None, landlock=0)


def said() -> TargetSelector:
    """Ask in a process of its own, which loads the library of this test."""
    told = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=60, check=True)
    return TargetSelector.model_validate(json.loads(told.stdout))


def first_target() -> dict[str, object]:
    async def ask() -> dict[str, object]:
        watch = Watch()
        try:
            return target_of(PROBED, (await watch.gpus())[0]).model_dump()
        finally:
            await watch.stop()

    answer: dict[str, object] = run(ask())
    return answer


@pytest.mark.parametrize(
    "lines",
    [
        ["driver 580.159.04", "cuda 13000", nv.gpu()],
        ["driver 570.86.15", "cuda 12080", nv.l40s(), nv.gpu()],
        [nv.gpu(mig=1), nv.instance(MIG_1, nv.H200, 2)],
        [nv.gpu(mig=1), nv.instance(MIG_1, nv.H200, 0, "NVIDIA H200")],  # an instance without its profile in the name
    ],
)
def test_client_and_service_say_the_same(nvml: Script, lines: list[str]):
    nvml.say(*lines)
    theirs, ours = first_target(), said().model_dump()
    for field in ("gpu", "compute_capabilities", "driver", "cuda", "mig_profile", "os", "arch"):
        assert theirs[field] == ours[field], field
    assert ours["gpu"]


def test_the_visible_one_counts(nvml: Script, monkeypatch: pytest.MonkeyPatch):
    nvml.say(nv.gpu(mig=1), nv.instance(MIG_1, nv.H200, 0), nv.instance(MIG_2, nv.H200, 1, "N MIG 2g.35gb"), nv.l40s())
    for visible, gpu, profile in (("1,0", "NVIDIA L40S", None), (MIG_2, "NVIDIA H200", "2g.35gb"), ("", None, None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert (said().gpu, said().mig_profile) == (gpu, profile)


@pytest.mark.parametrize(
    "lines", [[], [nv.fail("all", nv.NO_PERMISSION)], [nv.gpu(), nv.fail(nv.H200, nv.GPU_IS_LOST)]]
)
def test_without_a_usable_gpu_nothing_is_said_of_it(nvml: Script, lines: list[str]):
    nvml.say(*lines)
    assert (said().gpu, said().driver, said().builder) == (None, None, "tensorrt_rtx")


def test_a_driver_that_hangs_costs_seconds(nvml: Script):
    nvml.say("hang init", nv.gpu())
    began = time.monotonic()
    assert said().gpu is None
    assert time.monotonic() - began < 50

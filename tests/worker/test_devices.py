"""GPUs as NVML tells them: through the real nvidia-ml-py, against a library whose answers a script gives."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from app.worker.devices import NoGpus, Watch, visible
from app.worker.messages import Gpu
from tests.nvml import script as nv
from tests.nvml.script import Script
from tests.worker.models import run

T = TypeVar("T")

GPU_2, MIG_1, MIG_2 = "GPU-22222222-0000", "MIG-11111111-0000", "MIG-22222222-0000"


def watching(work: Callable[[Watch], Awaitable[T]], silent_s: float = 60) -> T:
    async def watched() -> T:
        watch = Watch(every_s=0.05, silent_s=silent_s)
        try:
            return await work(watch)
        finally:
            await watch.stop()

    answer: T = run(watched())
    return answer


def gpus() -> tuple[Gpu, ...]:
    return watching(lambda watch: watch.gpus())


def test_a_gpu_is_told_with_all_its_facts(nvml: Script):
    nvml.say("driver 580.159.04", "cuda 13000", nv.gpu())
    assert gpus() == (
        Gpu(nv.H200, "NVIDIA H200", "9.0", 150754820096, "580.159.04", "13.0", mig_profile=None, index="0"),
    )


def test_two_different_gpus_are_told_apart(nvml: Script):
    nvml.say("cuda 12080", nv.gpu(), nv.l40s())
    assert [(g.name, g.compute_capability, g.cuda, g.index) for g in gpus()] == [
        ("NVIDIA H200", "9.0", "12.8", "0"),
        ("NVIDIA L40S", "8.9", "12.8", "1"),
    ]


def test_instances_stand_for_a_gpu_that_mig_has_split(nvml: Script):
    nvml.say(
        nv.gpu(mig=1),
        nv.l40s(),
        nv.instance(MIG_1, nv.H200, 0),
        nv.instance(MIG_2, nv.H200, 4, "NVIDIA H200 MIG 2g.35gb"),
    )
    assert [(g.uuid, g.name, g.mig_profile, g.index) for g in gpus()] == [
        (MIG_1, "NVIDIA H200", "1g.18gb", "0:0"),
        (MIG_2, "NVIDIA H200", "2g.35gb", "0:4"),
        (nv.L40S, "NVIDIA L40S", None, "1"),
    ]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "shows no GPU"),
        ([nv.gpu(mig=1)], "shows no GPU"),
        ([nv.fail("all", nv.DRIVER_NOT_LOADED)], "driver is not loaded"),
        ([nv.fail("init", nv.VERSIONS_DIFFER)], "another version than the loaded driver"),
        ([nv.fail("count", nv.NO_PERMISSION), nv.gpu()], "may not ask the NVIDIA driver"),
        ([nv.fail(nv.H200, nv.GPU_IS_LOST), nv.gpu()], "GPU 0: it has fallen off the bus"),
        ([nv.fail("init", 999)], "NVML: Unknown Error"),
    ],
)
def test_a_driver_in_trouble_is_said_in_words(nvml: Script, lines: list[str], reason: str):
    nvml.say(*lines)
    with pytest.raises(NoGpus, match=reason):
        gpus()


def test_without_a_driver_the_library_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "libnvidia-ml.so.1").touch()  # cannot be loaded, and hides the one of a machine that has a driver
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(NoGpus, match="no NVIDIA driver is installed"):
        gpus()


def test_a_driver_that_hangs_is_given_up(nvml: Script):
    nvml.say("hang init", nv.gpu())
    with pytest.raises(NoGpus, match="has not answered for 2 seconds"):
        watching(lambda watch: watch.gpus(), silent_s=2)


def test_what_happens_on_a_gpu_is_sampled_and_a_lost_one_is_noticed(nvml: Script):
    nvml.say(nv.gpu(used=5000, percent=70), nv.process(nv.H200, 42, 3000, 65), nv.l40s())

    async def follow(watch: Watch) -> None:
        h200, l40s = await watch.gpus()
        await watch.next_sample()
        sample = watch.sample(h200)
        assert sample
        assert (sample.utilization, sample.memory_bytes) == (70, 5000)
        assert [(p.pid, p.memory_bytes, p.utilization) for p in sample.processes] == [(42, 3000, 65)]
        assert watch.trouble(h200) is None
        nvml.say(nv.gpu(), nv.l40s(), nv.fail(nv.L40S, nv.GPU_IS_LOST))
        await watch.next_sample()
        assert "fallen off the bus" in str(watch.trouble(l40s))
        assert watch.trouble(h200) is None

    watching(follow)


def test_a_driver_that_was_updated_asks_for_a_restart(nvml: Script):
    nvml.say("driver 580.159.04", nv.gpu())

    async def follow(watch: Watch) -> None:
        (gpu,) = await watch.gpus()
        nvml.say(nv.fail("all", nv.DRIVER_NOT_LOADED))
        while "not loaded" not in str(watch.trouble(gpu)):
            await watch.next_sample()
        nvml.say("driver 590.44.01", nv.gpu())
        while "not loaded" in str(watch.trouble(gpu)):
            await watch.next_sample()
        assert "driver 580.159.04" in str(watch.trouble(gpu))
        assert "is NVIDIA H200, driver 590.44.01, CUDA 13.0 now; restart the service" in str(watch.trouble(gpu))

    watching(follow)


def test_figures_that_a_driver_does_not_give_are_unknown(nvml: Script):
    nvml.say(nv.gpu(percent=-1), nv.process(nv.H200, 42, -1, 0), nv.fail("process_utilization", nv.NO_PERMISSION))

    async def follow(watch: Watch) -> None:
        (gpu,) = await watch.gpus()
        await watch.next_sample()
        sample = watch.sample(gpu)
        assert sample
        assert sample.utilization is None
        assert [(p.memory_bytes, p.utilization) for p in sample.processes] == [(None, None)]

    watching(follow)


def a_gpu(index: str, uuid: str) -> Gpu:
    return Gpu(uuid, "NVIDIA H200", "9.0", 1, "580.1", "13.0", None, index)


KNOWN = [a_gpu("0", nv.H200), a_gpu("1", GPU_2), a_gpu("2:0", MIG_1), a_gpu("2:1", MIG_2)]


@pytest.mark.parametrize(
    ("environment", "left"),
    [
        ({}, [nv.H200, GPU_2, MIG_1, MIG_2]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [GPU_2, nv.H200]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [MIG_1, MIG_2]),
        ({"CUDA_VISIBLE_DEVICES": MIG_2}, [MIG_2]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2222"}, [GPU_2]),
        ({"CUDA_VISIBLE_DEVICES": "0,7,1"}, [nv.H200]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, [nv.H200, GPU_2, MIG_1, MIG_2]),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": f"{GPU_2},{MIG_1}", "CUDA_VISIBLE_DEVICES": MIG_1}, [MIG_1]),
        ({"NVIDIA_VISIBLE_DEVICES": "3"}, [nv.H200, GPU_2, MIG_1, MIG_2]),
    ],
)
def test_only_gpus_that_the_service_may_see_are_used(environment: dict[str, str], left: list[str]):
    assert [gpu.uuid for gpu in visible(KNOWN, environment)] == left

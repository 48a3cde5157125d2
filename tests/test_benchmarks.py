"""The benchmark's own sums and its exit code; what it measures is not a test."""

import json
import os
import subprocess
import sys

import pytest

import benchmarks.gpu
from benchmarks.__main__ import main
from benchmarks.report import Line, Spread, percentile
from tests.nvml.script import gpu


def line(met: bool | None) -> Line:
    one = Spread.of([2.0, 1.0, 4.0])
    return Line("a thing", "s", one, "the floor", Spread.of([1.0]), "at most 1x", met, "by hand")


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentile(share, expected):
    assert percentile(range(100, 0, -1), share) == expected


def test_a_missed_goal_is_said_and_is_no_failure(tmp_path, capsys):
    path = tmp_path / "figures.json"
    assert main(["--json", str(path)], {"one": lambda: lambda scope: [line(False)]}) == 0
    assert "Goals missed: a thing" in capsys.readouterr().out
    (written,) = json.loads(path.read_text())["lines"]
    assert written["ratio"] == 2.0
    assert written["ours"] == {"median": 2.0, "low": 1.0, "high": 4.0, "count": 3}


def test_a_broken_measurement_fails_and_does_not_stop_the_others(capsys):
    def broken(scope):
        raise RuntimeError("no luck")

    assert main([], {"one": lambda: broken, "two": lambda: lambda scope: [line(True)]}) == 1
    said = capsys.readouterr()
    assert "no luck" in said.err
    assert "Broken: one" in said.err
    assert "a thing" in said.out


def test_only_those_asked_for_are_measured(capsys):
    def never(scope):
        raise AssertionError("not asked for")

    assert main(["--only", "two"], {"one": lambda: never, "two": lambda: lambda scope: [line(None)]}) == 0
    assert "Every goal that was measured is met." in capsys.readouterr().out


def test_the_look_at_a_gpu_machine_tells_its_fingerprint(nvml, tmp_path):
    nvml.say(gpu())
    told = json.loads(json.dumps(benchmarks.gpu.nvml(tmp_path)))
    assert (told["gpus"][0]["name"], told["client"]["builder"]) == ("NVIDIA H200", "tensorrt_rtx")
    assert told["samples"][0]["trouble"] is None


def test_lanes_are_measured_and_all_of_them_is_given_back(cuda):
    command = [sys.executable, "-m", "benchmarks.lanes", "0.02"]
    ran = subprocess.run(command, env=os.environ | cuda.environment, capture_output=True, text=True, check=True)
    points = json.loads(ran.stdout)["points"]
    assert [(p["contexts"], p["cuda_graphs"]) for p in points] == [(n, g) for n in (1, 2, 4) for g in (False, True)]
    assert all(p["inferences"] >= p["contexts"] for p in points)
    cuda.assert_nothing_is_held()

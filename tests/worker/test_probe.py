"""What a builder says of itself, and what is said of one that does not start."""

import pytest

from app.worker.messages import ProbeRequest
from app.worker.probe import BuilderUnusable, probe
from tests.worker.models import outcome, run, run_child


def test_the_real_builder_reports_itself():
    probed = run(probe("tensorrt_rtx", 60))
    assert probed.builder_version.count(".") == 3
    assert probed.compute_capabilities == sorted(
        probed.compute_capabilities, key=lambda c: [int(n) for n in c.split(".")]
    )
    assert {"7.5", "8.9", "12.0"} <= set(probed.compute_capabilities)
    assert (probed.default_optimization_level, probed.max_optimization_level) == (3, 5)
    assert probed.onnx_parser
    assert (probed.gpu, probed.driver, probed.cuda) == (None, None, None)


def test_a_builder_that_is_not_installed_is_unusable_with_the_reason():
    with pytest.raises(BuilderUnusable, match=r"no_such_builder does not start: .*ModuleNotFoundError"):
        run(probe("no_such_builder", 60))


def test_a_child_tells_an_unusable_builder_by_its_code(tmp_path):
    messages, _, _ = run(run_child(ProbeRequest("no_such_builder"), tmp_path))
    assert outcome(messages).code == "builder_unusable"


def test_a_builder_that_does_not_answer_in_time_is_unusable():
    with pytest.raises(BuilderUnusable, match="took more than"):
        run(probe("tensorrt_rtx", 0.001))

"""Real builds by the real builder."""

import stat

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_node
from onnx.numpy_helper import from_array

from app.worker.messages import Built, Failed, Log, PhaseFinished, PhaseStarted, PhaseStep, Stage
from tests.intake.hostile import model, value
from tests.worker.models import SQUEEZENET, build_request, chain, folder_with, outcome, profile, run, run_child


def _build(folder, model, **changes):
    messages, ended, output = run(run_child(build_request(**changes), folder_with(folder, model)))
    assert ended.code == 0
    return messages, outcome(messages), output


def _failure(folder, model, **changes):
    _, failed, output = _build(folder, model, **changes)
    assert isinstance(failed, Failed)
    assert not (folder / "plan").exists()
    assert str(folder) not in repr(failed) + output
    return failed


def test_a_build_leaves_a_private_plan_its_figures_and_a_sound_tree_of_phases(tmp_path):
    messages, built, output = _build(tmp_path, SQUEEZENET, profiles=[])
    assert isinstance(built, Built)
    plan = (tmp_path / "plan").stat()
    assert plan.st_size > 100_000
    assert stat.S_IMODE(plan.st_mode) == 0o600
    assert built.weights_bytes
    assert built.activation_bytes
    assert built.scratch_bytes is not None
    assert built.layers_by_dtype["float32"] > 50
    assert [m.stage for m in messages if isinstance(m, Stage)] == ["parse", "build"]
    assert "[INFO] Total Weights Memory" in output
    _assert_sound(messages)


def _assert_sound(messages):
    live, seen = {}, 0
    for message in messages:
        match message:
            case PhaseStarted():
                seen += 1
                assert message.id == seen
                assert message.parent is None or message.parent in live
                live[message.id] = message
            case PhaseStep():
                assert message.id in live
            case PhaseFinished():
                started = live.pop(message.id)
                assert message.elapsed_s == pytest.approx(message.at - started.at, abs=1e-6)
    assert seen > 3
    assert any(m.parent for m in messages if isinstance(m, PhaseStarted))


def test_two_builds_of_the_same_are_the_same_bytes(tmp_path):
    plans = []
    for name in ("a", "b"):
        (folder := tmp_path / name).mkdir()
        _build(folder, chain(5), profiles=[profile(), profile(1, 8)], compute_capabilities=["8.9", "12.0"])
        plans.append((folder / "plan").read_bytes())
    assert plans[0] == plans[1]


def test_every_unknown_operator_is_named_with_its_node_and_domain(tmp_path):
    last = [
        make_node("Strange", ["t1"], ["a"], name="first", domain="some.domain"),
        make_node("Stranger", ["a"], ["b"]),
    ]
    messages, failed, _ = _build(tmp_path, chain(1, *last))
    assert failed.code == "op_unsupported"
    found = [(n["node"], n["name"], n["op"], n["domain"]) for n in failed.where["nodes"]]
    assert found == [(1, "first", "Strange", "some.domain"), (2, "", "Stranger", "")]
    assert "Plugin not found" in failed.native
    assert [m for m in messages if isinstance(m, Log) and m.level == "error"]


def test_a_node_that_the_parser_blames_is_named_with_its_words(tmp_path):
    failed = _failure(tmp_path, chain(1, make_node("Relu", ["nowhere"], ["c"])))
    assert failed.code == "node_refused"
    assert "Relu" in failed.native
    assert failed.where["nodes"][0]["node"] == 1


def test_an_operator_in_a_form_that_the_builder_does_not_take_is_unsupported(tmp_path):
    failed = _failure(tmp_path, chain(1, make_node("Concat", ["t1", "t0"], ["c"], axis=7)))
    assert failed.code == "op_unsupported"
    assert "axis is: 7" in failed.where["nodes"][0]["text"]


def test_the_noise_of_a_machine_without_a_gpu_is_in_no_failure(tmp_path):
    failed = _failure(tmp_path, chain(1, make_node("Reshape", ["t1", "t0"], ["c"])))
    assert failed.code == "node_refused"
    assert "symbolic" in failed.native
    assert "cudaError" not in repr(failed)
    assert "\n" not in failed.message


def test_a_layer_without_a_kernel_is_told_from_other_failures(tmp_path):
    """NonMaxSuppression parses, and the builder for RTX has nothing that runs it."""
    boxes, scores = value("boxes", (1, 6, 4)), value("scores", (1, 1, 6))
    most = from_array(np.array([3], np.int64), "most")
    node = make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["y"])
    made = value("y", (None, 3), TensorProto.INT64)
    suppressing = model([node], inputs=[boxes, scores], outputs=[made], initializer=[most])
    assert _failure(tmp_path, suppressing, profiles=[]).code == "kernel_missing"


def test_a_part_that_the_compiler_gives_up_on_is_told_from_other_failures(tmp_path):
    shapes = {name: value(name, (2, 3, 4, 8)) for name in ("q", "k", "v")}
    node = make_node("Attention", ["q", "k", "v"], ["y"])
    attending = model([node], inputs=[*shapes.values()], outputs=[value("y", (2, 3, 4, 8))], opset=23)
    assert _failure(tmp_path, attending, profiles=[]).code == "compiler_failed"


def test_a_missing_model_is_a_builder_error(tmp_path):
    folder_with(tmp_path, chain(1))
    messages, _, _ = run(run_child(build_request(model="other.onnx"), tmp_path))
    failed = outcome(messages)
    assert failed.code == "builder_error"
    assert "cannot be found" in failed.native


@pytest.mark.parametrize(
    ("option", "asked", "got"),
    [
        ("optimization_level", 99, 5),
        ("optimization_level", -1, 3),
        ("optimization_level", 1 << 40, 3),
        ("workspace_bytes", 1 << 64, None),
        ("compute_capabilities", ["8.9", "9.0"], ["8.9"]),
    ],
)
def test_an_option_that_the_builder_changes_fails_the_build(tmp_path, option, asked, got):
    failed = _failure(tmp_path, chain(1), **{option: asked})
    assert failed.code == "option_unsupported"
    assert (failed.where["option"], failed.where["asked"]) == (option, asked)
    assert failed.where["got"] == got or got is None


def test_no_workspace_gives_the_builders_own_first_error(tmp_path):
    failed = _failure(tmp_path, chain(1), workspace_bytes=0)
    assert failed.code == "builder_error"
    assert "workspace" in failed.native


def test_an_input_without_a_profile_is_not_taken_for_a_cancel(tmp_path):
    failed = _failure(tmp_path, chain(1), profiles=[])
    assert failed.code == "builder_error"
    assert "no optimization profile" in failed.native


@pytest.mark.parametrize(
    ("ranges", "where"),
    [
        ({"nope": profile()["t0"]}, {"profile": 1, "input": "nope"}),
        ({"t0": {"min": [1] * 9, "opt": [1] * 9, "max": [1] * 9}}, {"profile": 1, "input": "t0"}),
        ({"t0": {"min": [1 << 70, 3], "opt": [1, 3], "max": [1, 3]}}, {"profile": 1, "input": "t0"}),
    ],
)
def test_a_profile_that_the_builder_refuses_is_named(tmp_path, ranges, where):
    failed = _failure(tmp_path, chain(1), profiles=[profile(), ranges])
    assert (failed.code, failed.where) == ("profile_invalid", where)


def test_a_link_in_the_plans_place_is_not_followed(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "plan").symlink_to("target")
    _, failed, _ = _build(tmp_path, chain(1))
    assert failed.code == "internal_error"
    assert (tmp_path / "target").read_text() == "kept"

"""Inspection from the parent: whatever the file does, a value comes back and nothing stays behind."""

import tempfile
from pathlib import Path

import onnx
from onnx.helper import make_node

from app.worker.inspection import inspect
from app.worker.messages import Inspected, InspectRequest, Refused
from tests.intake import hostile
from tests.worker.models import OCR, chain, folder_with, run, run_child


def _inspect(model: Path, seconds: float = 60.0) -> Inspected | Refused:
    with tempfile.TemporaryDirectory() as folder:
        answer: Inspected | Refused = run(inspect(model, Path(folder), seconds))
    return answer


def test_a_real_model_is_inspected_and_its_file_stays(tmp_path):
    answer = _inspect(OCR)
    assert isinstance(answer, Inspected)
    assert answer.inspection["operators"]["Conv"] == 62
    assert OCR.exists()


def test_a_refusal_names_no_path(tmp_path):
    model = tmp_path / "broken.onnx"
    onnx.save(chain(1, make_node("Relu", ["not there"], ["y"], name="n")), model)
    answer = _inspect(model)
    assert isinstance(answer, Refused)
    assert answer.code == "model_invalid"
    assert "not there" in answer.message
    assert "/" not in answer.message


def test_too_slow_is_a_refusal(tmp_path):
    answer = _inspect(OCR, seconds=0.001)
    assert answer == Refused("model_unreadable", "The model could not be read: it took more than 0.001 seconds.")


def test_a_file_larger_than_protobuf_allows_is_refused_unread(tmp_path):
    model = tmp_path / "large.onnx"
    with model.open("wb") as file:
        file.truncate(1 << 31)
    answer = _inspect(model)
    assert isinstance(answer, Refused)
    assert answer.code == "not_an_onnx_model"
    assert "2147483647" in answer.message


def test_a_function_that_calls_itself_is_refused(tmp_path):
    model = chain(1, make_node("Again", ["t1"], ["y"], domain="some.domain"))
    body = [make_node("Again", ["x"], ["y"], domain="some.domain")]
    opsets = [onnx.helper.make_opsetid("some.domain", 1)]
    model.functions.append(onnx.helper.make_function("some.domain", "Again", ["x"], ["y"], body, opsets))
    path = tmp_path / "recursive.onnx"
    onnx.save(model, path)
    answer = _inspect(path)
    assert isinstance(answer, Refused)
    assert answer.code == "model_too_complex"


def test_processor_time_is_bounded_by_the_kernel(tmp_path):
    """4,000 functions call a name that 4,000 others share: 16 million calls to follow, more than a second's work."""
    named = [hostile.function("F", onnx.helper.make_node("Neg", ["v"], ["w"]), domain=f"d{n}") for n in range(4000)]
    callers = [hostile.function(f"G{n}", hostile.call("F", "v", "w", domain="d0")) for n in range(4000)]
    model = hostile.model([hostile.call("G0")], *named, *callers)
    request = InspectRequest("model.onnx", 23, {}, 1)
    _, ended, _ = run(run_child(request, folder_with(tmp_path, model)))
    assert ended.signal in ("SIGXCPU", "SIGKILL")

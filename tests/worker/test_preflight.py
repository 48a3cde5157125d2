"""Preflight from the parent: whatever the model does to the parser, a value comes back."""

import numpy as np
from onnx import TensorProto
from onnx.helper import make_function, make_node
from onnx.numpy_helper import from_array

from app.worker.messages import Examined, PreflightRequest
from app.worker.preflight import preflight
from tests.intake import hostile
from tests.worker.models import OCR, OCR_PROFILE, folder_with, run


def _preflight(folder, model, *profiles, seconds=60.0) -> Examined:
    request = PreflightRequest("tensorrt_rtx", "model.onnx", list(profiles), 60, 2.0)
    found: Examined = run(preflight(request, folder_with(folder, model), seconds))
    return found


def test_a_model_that_can_be_built(tmp_path):
    assert _preflight(tmp_path, OCR, OCR_PROFILE) == Examined([], [], [OCR_PROFILE])


def test_values_that_only_the_builder_finds_are_missing_before_it_builds(tmp_path):
    """The size reaches a shape through a branch that reading the graph does not follow."""
    size = hostile.value("size", (), TensorProto.INT64)
    body = make_node("Range", ["zero", "s", "one"], ["w"])
    function = make_function("my", "Upto", ["s", "zero", "one"], ["w"], [body], hostile.OURS)
    stored = [from_array(np.array(n, np.int64), name) for n, name in ((0, "zero"), (1, "one"))]
    call = make_node("Upto", ["size", "zero", "one"], ["y"], domain="my")
    made = hostile.value("y", (None,), TensorProto.INT64)
    model = hostile.model([call], function, inputs=[size], outputs=[made], initializer=stored)
    (problem,) = _preflight(tmp_path, model).problems
    assert (problem["code"], problem["where"]) == ("shape_values_required", {"profile": 0, "input": "size"})


def test_a_parser_that_crashes_is_a_problem(tmp_path):
    """Uploads refuse this model before; here nobody did."""
    (problem,) = _preflight(tmp_path, hostile.calls_itself()).problems
    assert (problem["code"], problem["where"]) == ("builder_crashed", {"signal": "SIGSEGV"})


def test_one_that_takes_too_long_is_a_problem(tmp_path):
    (problem,) = _preflight(tmp_path, OCR, OCR_PROFILE, seconds=0.001).problems
    assert problem["code"] == "model_unreadable"

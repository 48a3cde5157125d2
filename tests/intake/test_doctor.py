"""The shape doctor against the real builder, and on models that people really have."""

import onnx
import pytest
import tensorrt_rtx as trt
from onnx import ModelProto

from app.intake.corners import Axis, flags, with_extent
from app.intake.doctor import examine
from app.intake.unfit import Report
from tests.conftest import ocr, silero
from tests.intake.doctored import CALLED, CASES, FOURS, POOL, WINDOW, profile
from trtforge.contract.failures import CODES


def doctored(model, *profiles) -> Report:
    loaded = model if isinstance(model, ModelProto) else onnx.load(model, load_external_data=False)
    return examine(loaded, list(profiles), 120, lambda: False)


def builds(model: ModelProto, asked) -> bool:
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    config = builder.create_builder_config()
    config.builder_optimization_level = 0
    ranges = builder.create_optimization_profile()
    for name, three in asked.items():
        ranges.set_shape(name, three["min"], three["opt"], three["max"])
    config.add_optimization_profile(ranges)
    return builder.build_serialized_network(network, config) is not None


@pytest.mark.parametrize("case", CASES)
def test_problems_are_what_the_builder_fails_on(case):
    model, asked, built = CASES[case]
    assert builds(model, asked) == built
    report = doctored(model, asked)
    assert (report.problems == []) == built
    assert {p["code"] for p in report.problems} <= {"shape_invalid"}
    assert built or report.problems[0]["where"]["corner"] == "opt"


@pytest.mark.parametrize("case", [c for c in CASES if not CASES[c][2] and "out of reach" not in c])
def test_what_it_proposes_has_no_problem_and_builds(case):
    model, asked, _ = CASES[case]
    (mended,) = doctored(model, asked).profiles
    assert doctored(model, mended).problems == []
    assert builds(model, mended)


def test_the_recogniser_needs_a_height_of_33_at_opt():
    """The builder's own words for this blame layers far from the input."""
    model = ocr("rec")
    for low, opt, high in ((32, 32, 32), (32, 32, 48)):
        asked = profile(x=([1, 3, low, 32], [1, 3, opt, 320], [2, 3, high, 640]))
        (problem,) = doctored(model, asked).problems
        assert problem["code"] == "shape_invalid"
        assert problem["where"]["corner"] == "opt"
        assert problem["where"]["op"] == "Reshape"
        assert (problem["where"]["input"], problem["where"]["axis"]) == ("x", 2)
        assert problem["where"]["smallest_legal"] == 33
        assert "--optShapes=x:1x3x33x320" in problem["remedy"]
    good = profile(x=([1, 3, 48, 32], [1, 3, 48, 320], [2, 3, 48, 640]))
    assert doctored(model, good) == Report(profiles=[good])
    wide = profile(x=([1, 3, 1, 32], [1, 3, 48, 320], [2, 3, 64, 640]))
    report = doctored(model, wide)
    assert report.problems == []
    assert [(w["code"], w["where"]["smallest_legal"]) for w in report.warnings] == [("shape_unusable", 33)]


def test_a_length_that_crashes_the_builder_is_a_problem_with_the_smallest_that_does_not():
    state = ([2, 1, 128],) * 3
    asked = profile(input=([1, 1], [1, 512], [1, 1024]), state=state)
    report = doctored(silero("silero_vad_op18_ifless"), asked)
    (problem,) = report.problems
    assert problem["where"] | {"given": {}} == {
        "profile": 0,
        "corner": "min",
        "layer": "node_Conv_29",
        "op": "Conv",
        "input": "input",
        "axis": 1,
        "extent": 1,
        "smallest_legal": 64,
        "given": {},
    }
    assert "--minShapes=input:1x64,state:2x1x128" in problem["remedy"]
    assert report.profiles == [profile(input=([1, 64], [1, 512], [1, 1024]), state=state)]
    assert doctored(silero("silero_vad_op18_ifless"), *report.profiles).problems == []


def test_the_detector_is_well_at_its_usual_shapes():
    asked = profile(x=([1, 3, 64, 64], [1, 3, 640, 640], [1, 3, 1280, 1280]))
    assert doctored(ocr("det"), asked) == Report(profiles=[asked])


def test_a_window_inside_a_function_is_found():
    (problem,) = doctored(CALLED, profile(x=([1, 1, 1], [1, 1, 8], [1, 1, 9]))).problems
    assert (problem["where"]["op"], problem["where"]["smallest_legal"]) == ("Conv", 4)


def test_a_reshape_to_constant_extents_is_told_apart():
    report = doctored(FOURS, profile(x=([4], [8], [13])))
    assert report.problems == []
    assert [w["code"] for w in report.warnings] == ["axis_frozen"]
    assert report.warnings[0]["where"]["layer"] == "reshape"


def test_two_axes_are_searched_one_after_the_other():
    (problem,) = doctored(POOL, profile(x=([1, 1, 8, 1], [1, 1, 8, 8], [1, 1, 9, 9]))).problems
    assert (problem["where"]["axis"], problem["where"]["smallest_legal"]) == (3, 4)


def test_each_profile_is_examined():
    good, bad = (profile(x=([1, 1, low], [1, 1, 8], [1, 1, 9])) for low in (5, 1))
    report = doctored(WINDOW, good, bad)
    assert [p["where"]["profile"] for p in report.problems] == [1]
    assert report.profiles == [good, profile(x=([1, 1, 4], [1, 1, 8], [1, 1, 9]))]


def test_ranges_too_wide_and_tensors_too_large_are_warned_of():
    report = doctored(ocr("det"), profile(x=([1, 3, 32, 32], [1, 3, 640, 640], [1, 3, 8000, 8000])))
    assert report.problems == []
    assert {w["code"] for w in report.warnings} == {"range_wide"}
    report = doctored(ocr("det"), profile(x=([1, 3, 8000, 8000], [1, 3, 8000, 8000], [16, 3, 8000, 8000])))
    (large,) = report.warnings
    assert large["code"] == "tensor_large"
    assert large["where"]["bytes"] > 8 << 30


def test_out_of_time_or_told_to_stop_it_says_nothing():
    asked = profile(x=([1, 3, 32, 32], [1, 3, 32, 320], [2, 3, 32, 640]))
    model = onnx.load(ocr("rec"))
    assert examine(model, [asked], 0.0, lambda: False) == Report(profiles=[asked])
    assert examine(model, [asked], 60, lambda: True) == Report(profiles=[asked])


def test_a_profile_is_moved_as_its_order_demands():
    axis = Axis((("x", 0), ("y", 1)))
    asked = profile(x=([2], [4], [8]), y=([1, 2], [1, 4], [1, 8]))
    assert with_extent(asked, "opt", axis, 16) == profile(x=([2], [16], [16]), y=([1, 2], [1, 16], [1, 16]))
    assert with_extent(asked, "min", axis, 6) == profile(x=([6], [6], [8]), y=([1, 6], [1, 6], [1, 8]))
    assert with_extent(asked, "max", axis, 1) == profile(x=([1], [1], [1]), y=([1, 1], [1, 1], [1, 1]))
    assert flags(profile(**{"a b": ([2], [4], [8])})).startswith("""'--minShapes='"'"'a b'"'"':2'""")


def test_its_codes_are_in_the_list():
    assert {"shape_invalid", "shape_unusable", "axis_frozen", "range_wide", "tensor_large"} <= CODES.keys()

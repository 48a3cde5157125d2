"""Our rules against the real builder's: what we let through it builds, what it would narrow or refuse we refuse."""

import onnx
import pytest
import tensorrt_rtx as trt
from onnx import TensorProto, helper

from app.intake.checks import profile_template
from app.intake.profiles import check_profiles
from tests.intake.models import ranged, tensor
from trtforge.contract.spec import BuildSpec, OptimizationProfile

INPUTS = [tensor("a", None, 1, axes=("n", None)), tensor("b", None, 1, axes=("n", None))]


def built(profile: OptimizationProfile) -> bool:
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert trt.OnnxParser(network, logger).parse(_sum_of_two().SerializeToString())
    config = builder.create_builder_config()
    ranges = builder.create_optimization_profile()
    for name, asked in profile.items():
        ranges.set_shape(name, asked.min, asked.opt, asked.max)
    config.add_optimization_profile(ranges)
    return builder.build_serialized_network(network, config) is not None


def _sum_of_two() -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in "ab"]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "sum", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_the_builder_takes_our_template():
    (profile,) = BuildSpec.model_validate({"profiles": profile_template(INPUTS)}).profiles
    assert check_profiles([profile], INPUTS) == []
    assert built(profile)


@pytest.mark.parametrize("other", [(8, 16, 32), (1, 3, 4)], ids=["apart", "unlike opt"])
def test_unequal_ranges_of_one_name_fail_in_the_builder_and_here(other):
    profile = {"a": ranged((1, 2, 4), (1, 1, 1)), "b": ranged(other, (1, 1, 1))}
    assert check_profiles([profile], INPUTS) != []
    assert not built(profile)


def test_a_range_that_the_builder_would_narrow_without_a_word_is_refused_here():
    profile = {"a": ranged((1, 2, 4), (1, 1, 1)), "b": ranged((1, 2, 8), (1, 1, 1))}
    assert built(profile)
    assert [t.where for t in check_profiles([profile], INPUTS)] == [{"profile": 0, "input": "b", "axis": 0}]

"""What the builder or this version cannot do is refused by name, with what it can."""

import pytest

from app.domain.effective import effective
from app.intake.options import check_options
from trtforge.contract.spec import BuildSpec
from trtforge.contract.target import Capabilities, Option, SpecDefaults

CAN = Capabilities(
    precisions=("as_is", "bf16"),
    optimization_level=(0, 5),
    workspace_bytes=(1 << 20, 1 << 40),
    compute_capabilities=("8.9",),
    opset=22,
    needs_gpu=False,
    timing_cache=False,
    portable=True,
    defaults=SpecDefaults(precision="as_is", optimization_level=3, workspace_bytes=1 << 30),
)


def test_what_can_be_done_is_no_trouble():
    assert check_options(BuildSpec(), CAN) == []
    for level, workspace in ((0, 1 << 20), (5, 1 << 40)):
        spec = BuildSpec(precision="bf16", optimization_level=level, workspace_bytes=workspace)
        assert check_options(spec, CAN) == []


@pytest.mark.parametrize(
    ("spec", "option", "says"),
    [
        (BuildSpec(precision="fp16"), "precision", "as_is, bf16"),
        (BuildSpec(optimization_level=-1), "optimization_level", "0 to 5"),
        (BuildSpec(optimization_level=6), "optimization_level", "0 to 5"),
        (BuildSpec(workspace_bytes=0), "workspace_bytes", "1048576 to 1099511627776"),
        (BuildSpec(workspace_bytes=1 << 41), "workspace_bytes", "1048576 to 1099511627776"),
    ],
)
def test_one_thing_that_cannot_be_done_is_one_trouble(spec, option, says):
    (found,) = check_options(spec, CAN)
    assert found.code == "option_unsupported"
    assert found.where == {"option": option}
    assert says in found.remedy


def test_everything_is_told_at_once():
    spec = BuildSpec(precision="int4", optimization_level=9, workspace_bytes=1)
    found = [t.where["option"] for t in check_options(spec, CAN)]
    assert found == ["precision", "optimization_level", "workspace_bytes"]


FULL = CAN.model_copy(
    update={
        "plugins": {"a": "sha256:1", "b": "sha256:2"},
        "options": {
            "hardware_compatibility": Option(choices=("none", "ampere_plus"), default="none"),
            "refit": Option(choices=("none", "identical"), default="none"),
            "stripped_plan": Option(choices=(False, True), default=False),
            "tactic_sources": Option(choices=("cudnn", "jit"), several=True, default=("jit",)),
            "tactic_dram_bytes": Option(range=(1 << 16, 1 << 40), power_of_two=True),
            "version_compatible": Option(choices=(False, True), default=False),
            "plugins_to_serialize": Option(choices=("a", "b"), several=True),
        },
    }
)


@pytest.mark.parametrize(
    ("spec", "option", "says"),
    [
        (BuildSpec(hardware_compatibility="volta"), "hardware_compatibility", "one of: none, ampere_plus"),
        (BuildSpec(tactic_sources=("jit", "cublas")), "tactic_sources", "any of: cudnn, jit"),
        (BuildSpec(tactic_dram_bytes=3 << 20), "tactic_dram_bytes", "a power of two from 65536"),
        (BuildSpec(tactic_dram_bytes=0), "tactic_dram_bytes", "a power of two from 65536"),
        (BuildSpec(stripped_plan=True), "stripped_plan", 'refit "identical"'),
        (BuildSpec(weight_streaming=True), "weight_streaming", "full TensorRT"),
        (BuildSpec(plugins=("a",), plugins_to_serialize=("c",)), "plugins_to_serialize", "any of: a, b"),
        (BuildSpec(plugins=("a",), plugins_to_serialize=("a",)), "plugins_to_serialize", "`version_compatible`"),
        (
            BuildSpec(plugins=("a",), plugins_to_serialize=("a", "b"), version_compatible=True),
            "plugins_to_serialize",
            "in `plugins` too",
        ),
    ],
)
def test_an_option_of_the_full_builder_is_taken_as_listed(spec, option, says):
    (found,) = check_options(spec, FULL)
    assert (found.code, found.where) == ("option_unsupported", {"option": option})
    assert says in found.remedy


def test_listed_choices_are_no_trouble_and_what_asks_for_nothing_never_is():
    asked = {"hardware_compatibility": "ampere_plus", "refit": "identical", "stripped_plan": True}
    spec = BuildSpec(**asked, tactic_sources=("jit", "cudnn"), tactic_dram_bytes=1 << 20)
    assert check_options(spec, FULL) == []
    assert check_options(BuildSpec(tactic_sources=()), FULL) == []
    nothing = BuildSpec(hardware_compatibility="none", refit="none", sparsity=False, weight_streaming=False)
    assert check_options(nothing, CAN) == []
    found = [t.where["option"] for t in check_options(spec, CAN)]
    assert found == [name for name in type(spec).model_fields if name in spec.model_fields_set]


def test_what_is_left_out_is_filled_with_constants_and_what_the_builder_lacks_shapes_nothing():
    given = effective(BuildSpec(tactic_sources=("jit", "cudnn", "jit"), sparsity=False), FULL)
    assert given.tactic_sources == ("cudnn", "jit")
    assert (given.hardware_compatibility, given.stripped_plan, given.tactic_dram_bytes) == ("none", False, None)
    assert (given.sparsity, given.profiling_verbosity) == (None, None)
    assert effective(BuildSpec(plugins_to_serialize=()), FULL) == effective(BuildSpec(), FULL)
    assert effective(BuildSpec(hardware_compatibility="none"), CAN) == effective(BuildSpec(), CAN)

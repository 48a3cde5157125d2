"""What the builder or this version cannot do is refused by name, with what it can."""

import pytest

from app.intake.options import check_options
from trtforge.contract.spec import BuildSpec
from trtforge.contract.target import Capabilities, SpecDefaults

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

"""One refusal with everything in it; the template is legal, and the real builder takes it."""

import shlex
from typing import Any

import pytest
from hypothesis import given

from app.errors import Refused, trouble
from app.intake.checks import ERRORS_SHOWN, profile_template, refuse, trtexec_flags
from app.intake.profiles import check_profiles, is_open
from tests.intake.models import UNRANKED, models, ranged, tensor
from trtforge.contract.spec import BuildSpec, ShapeRange

IMAGE = tensor("x", None, 3, None, 224, axes=("N", None, "height", None))


@given(models())
def test_a_template_can_be_sent_as_it_is(inputs):
    template = profile_template(inputs)
    spec = BuildSpec.model_validate_json(BuildSpec.model_validate({"profiles": template}).model_dump_json())
    assert check_profiles(spec.profiles, inputs) == []
    assert bool(template) == any(map(is_open, inputs))


def test_the_numbers_of_a_template():
    assert profile_template([IMAGE, tensor("k", 3)]) == [
        {"x": {"min": [1, 3, 64, 224], "opt": [1, 3, 224, 224], "max": [8, 3, 448, 224]}}
    ]
    assert profile_template([UNRANKED]) == [{"any": {"min": [1], "opt": [1], "max": [8]}}]
    assert profile_template([tensor("k", 3)]) == []


def test_a_template_shrinks_where_a_tensor_would_be_too_large():
    wide = tensor("x", *(None,) * 8)
    assert check_profiles(BuildSpec.model_validate({"profiles": profile_template([wide])}).profiles, [wide]) == []


def test_axes_of_one_name_get_one_range_in_a_template():
    (template,) = profile_template([tensor("x", None, axes=("batch",)), tensor("s", 2, None, axes=(None, "batch"))])
    assert template["s"]["max"] == [2, 8]


def test_trtexec_flags():
    one = {"x": ranged((1, 4, 8), (3, 3, 3)), "y": ranged((1, 2, 3))}
    assert trtexec_flags([one]) == "--minShapes=x:1x3,y:1 --optShapes=x:4x3,y:2 --maxShapes=x:8x3,y:3"
    assert trtexec_flags([]) == ""
    several = trtexec_flags([one, one]).split()
    assert [w for w in several if w.startswith("--profile")] == ["--profile=0", "--profile=1"]


def test_names_with_odd_characters_survive_a_shell():
    flags = shlex.split(trtexec_flags([{"serving:0 $(x)": ranged((1, 1, 1))}]))
    assert flags[0] == "--minShapes='serving:0 $(x)':1"


def caught(problems: list[Any], inputs: list[Any]) -> Refused:
    with pytest.raises(Refused) as raised:
        refuse(problems, inputs)
    return raised.value


def test_no_problem_no_refusal():
    refuse([], [IMAGE])


def test_a_refusal_has_every_problem_a_template_and_the_flags():
    bad = ShapeRange(min=(0, 3, 9, 224), opt=(1, 3, 8, 224), max=(1, 3, 8, 224))
    problems = check_profiles([{"x": bad}], [IMAGE])
    error = caught(problems, [IMAGE])
    assert (error.code, error.status) == ("profile_invalid", 422)
    assert list(error.errors) == problems
    assert len(problems) == 2
    assert error.extra["template"] == profile_template([IMAGE])
    assert error.extra["trtexec"].startswith("--minShapes=x:1x3x64x224 ")


def test_other_problems_need_no_template():
    error = caught([trouble("option_unsupported", "No.", option="precision")], [IMAGE])
    assert error.code == "option_unsupported"
    assert error.extra == {}


def test_an_answer_stays_small():
    many = check_profiles([{f"n{i}": ranged() for i in range(3000)}], [tensor("k", 1)])
    error = caught(many, [])
    assert len(many) == 3000
    assert len(error.errors) == ERRORS_SHOWN
    assert "2999 more" in error.detail

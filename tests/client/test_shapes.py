"""Profiles as trtexec spells them."""

import shlex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtforge.cli.shapes import as_json, as_trtexec, fit, read_json, read_profiles, read_shapes
from trtforge.contract.models import Tensor
from trtforge.contract.spec import ShapeRange

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure


def test_three_options_make_a_profile():
    (profile,) = read_profiles(["x:1x3x64x64,y:1"], ["x:4x3x64x64,y:2"], ["x:8x3x64x64,y:3"], [])
    assert profile == {
        "x": ShapeRange(min=(1, 3, 64, 64), opt=(4, 3, 64, 64), max=(8, 3, 64, 64)),
        "y": ShapeRange(min=(1,), opt=(2,), max=(3,)),
    }


def test_opt_alone_is_all_three_and_so_is_shapes():
    expected = ({"x": ShapeRange(min=(2, 3), opt=(2, 3), max=(2, 3))},)
    assert read_profiles([], ["x:2x3"], [], []) == expected
    assert read_profiles([], [], [], ["x:2x3"]) == expected


def test_repeated_options_make_further_profiles():
    first, second = read_profiles(["x:1", "x:5"], ["x:2", "x:6"], ["x:3", "x:7"], [])
    assert (first["x"].min, second["x"].max) == ((1,), (7,))


@pytest.mark.parametrize(
    ("low", "best", "high", "fixed", "says"),
    [
        (["x:1"], [], ["x:2"], [], "only --optShapes"),
        (["x:1"], ["x:1"], [], [], "only --optShapes"),
        (["x:1"], ["x:1", "x:2"], ["x:1"], [], "1, 2 and 1"),
        (["x:1"], ["x:1"], ["x:1"], ["x:1"], "either --shapes"),
        (["x:1"], ["x:1,y:1"], ["x:1"], [], "not all have y"),
    ],
)
def test_trtexecs_rules_for_which_are_given(low, best, high, fixed, says):
    with pytest.raises(ValueError, match=says):
        read_profiles(low, best, high, fixed)


def test_names_with_colons_quotes_and_scalars():
    assert read_shapes("Input:0:1x3,'Input:1':2,a:scalar,b:") == {"Input:0": (1, 3), "Input:1": (2,), "a": (), "b": ()}


@pytest.mark.parametrize("words", ["x", "x:1x", "x:axb", ":1x3", "x:1 2", "x:1,x:2", "", "x:1.5"])
def test_what_is_no_shape_is_quoted_back(words):
    with pytest.raises(ValueError, match=r"is not|named twice|no shapes"):
        read_shapes(words)


name = st.text(st.characters(exclude_characters="'", categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
extents = st.lists(st.integers(0, 4096), max_size=6).map(tuple)
profile = st.dictionaries(
    name, st.fixed_dictionaries({"min": extents, "opt": extents, "max": extents}), min_size=1, max_size=4
)


@patient
@given(st.lists(profile, min_size=1, max_size=3))
def test_what_is_written_reads_back_the_same(profiles):
    options: dict[str, list[str]] = {"min": [], "opt": [], "max": []}
    for word in shlex.split(as_trtexec(profiles)):
        option, _, value = word.partition("=")
        options[option[2:5]].append(value)
    read = read_profiles(options["min"], options["opt"], options["max"], [])
    assert read == tuple({n: ShapeRange(**shapes) for n, shapes in p.items()} for p in profiles)
    words = shlex.split(as_json(profiles))
    assert tuple(read_json(word) for word in words if word != "--profile") == read


def test_json_profile_names_the_field_at_fault():
    with pytest.raises(ValueError, match=r"x\.opt"):
        read_json('{"x": {"min": [1], "max": [2]}}')


def tensor(name: str, shape_values: bool = False) -> Tensor:
    return Tensor(name=name, dtype="float32", shape=(None,), axes=(None,), shape_values=shape_values)


def test_stars_and_shape_values_come_from_the_model():
    (asked,) = read_profiles([], ["in*:1,size:2,other:3"], [], [])
    fitted = fit(asked, [tensor("in1"), tensor("in2"), tensor("size", shape_values=True)])
    assert set(fitted) == {"in1", "in2", "size", "other"}
    assert [n for n, s in fitted.items() if s.values] == ["size"]

"""A legal profile has no trouble; each rule broken alone is told with its place."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.intake.profiles import LARGEST_EXTENT, check_profiles
from tests.intake.models import UNRANKED, legal_profiles, models, ranged, tensor
from trtforge.contract.models import Tensor

IMAGE = tensor("x", None, 3, None, None, axes=("N", None, None, None))
GOOD = ((1, 2, 4), (3, 3, 3), (8, 8, 8), (8, 9, 9))


def broken(*triples):
    return check_profiles([{"x": ranged(*triples)}], [IMAGE])


def places(found):
    return [(t.code, t.where.get("profile"), t.where["input"], t.where.get("axis")) for t in found]


@given(st.data())
def test_a_legal_profile_has_no_trouble(data):
    inputs = data.draw(models())
    assert check_profiles([data.draw(legal_profiles(inputs)) for _ in range(2)], inputs) == []


@given(st.data(), st.sampled_from(["below_one", "min_over_opt", "opt_over_max", "absurd"]))
def test_each_rule_broken_alone_is_told_with_its_axis(data, rule):
    inputs = data.draw(models())
    profile = data.draw(legal_profiles(inputs))
    open_axes = [
        (t, axis)
        for t in inputs
        if t.name in profile
        for axis in range(len(profile[t.name].min))
        if t.shape is None or t.shape[axis] is None
    ]
    assume(open_axes)
    one, axis = data.draw(st.sampled_from(open_axes))
    wrong = {
        "below_one": ((0, 1, 1), "min must be at least 1"),
        "min_over_opt": ((5, 4, 6), "min must not exceed opt"),
        "opt_over_max": ((4, 6, 5), "opt must not exceed max"),
        "absurd": ((1, 1, 2**40), "up to 2^31 - 1"),
    }[rule]
    asked = profile[one.name]
    columns = list(zip(asked.min, asked.opt, asked.max, strict=True))
    columns[axis] = wrong[0]
    found = check_profiles([profile, {**profile, one.name: ranged(*columns)}], inputs)
    told = [t for t in found if wrong[1] in t.message]
    assert [t.where for t in told] == [{"profile": 1, "input": one.name, "axis": axis}]
    assert all("of that name" in t.message for t in found if t not in told)  # only its namesakes may differ from it now
    assert "min {}, opt {}, max {}".format(*wrong[0]) in told[0].message


def test_no_profile_names_inputs_and_their_open_axes():
    found = check_profiles([], [IMAGE, tensor("k", 3), UNRANKED])
    assert [t.code for t in found] == ["profile_required", "profile_required"]
    assert [t.where for t in found] == [{"input": "x", "axes": [0, 2, 3]}, {"input": "any", "axes": []}]
    assert "open axes 0 (N), 2, 3" in found[0].message
    assert "unknown rank" in found[1].message


def test_without_open_axes_no_profile_is_needed():
    assert check_profiles([], [tensor("k", 3), tensor("scalar")]) == []
    assert check_profiles([{}], [tensor("k", 3)]) == []


def test_an_open_input_that_a_profile_leaves_out():
    profile = {"x": ranged(*GOOD)}
    found = check_profiles([profile, {}], [IMAGE, tensor("k", 3)])
    assert places(found) == [("profile_required", 1, "x", None)]


def test_an_unknown_input_is_told_with_those_that_exist():
    found = check_profiles([{"x": ranged(*GOOD), "X": ranged((1, 1, 1))}], [IMAGE, tensor("k", 3)])
    assert places(found) == [("profile_invalid", 0, "X", None)]
    assert "x, k" in found[0].message


def test_a_list_of_thousands_of_inputs_stays_readable():
    (found,) = check_profiles([{"nope": ranged()}], [tensor(f"in{i}", 1) for i in range(5000)])
    assert "5000 in all" in found.message
    assert len(found.message) < 500


@pytest.mark.parametrize("triples", [GOOD[:3], (*GOOD, (1, 1, 1)), ()])
def test_another_rank(triples):
    found = broken(*triples)
    assert places(found) == [("profile_invalid", 0, "x", None)]
    assert f"rank 4; min, opt and max have {len(triples)}" in found[0].message


def test_three_shapes_of_unlike_rank():
    uneven = ranged(*GOOD).model_copy(update={"opt": (2, 3, 8)})
    assert "have 4, 3 and 4" in check_profiles([{"x": uneven}], [IMAGE])[0].message
    assert "needs one rank" in check_profiles([{"any": uneven}], [UNRANKED])[0].message


def test_a_profile_gives_an_unknown_rank():
    assert check_profiles([{"any": ranged((1, 2, 3), (4, 4, 4))}], [UNRANKED]) == []
    assert places(check_profiles([{"any": ranged((1, 2, 3), (4, 3, 4))}], [UNRANKED])) == [
        ("profile_invalid", 0, "any", 1)
    ]


@pytest.mark.parametrize("triple", [(1, 3, 3), (3, 3, 4), (4, 4, 4), (-1, -1, -1)])
def test_a_fixed_axis_keeps_its_extent(triple):
    found = broken(GOOD[0], triple, *GOOD[2:])
    assert places(found) == [("profile_invalid", 0, "x", 1)]
    assert "fixes this axis at 3" in found[0].message


def test_an_input_without_open_axes_may_only_repeat_its_shape():
    assert check_profiles([{"k": ranged((3, 3, 3))}], [tensor("k", 3)]) == []
    assert places(check_profiles([{"k": ranged((3, 3, 4))}], [tensor("k", 3)])) == [("profile_invalid", 0, "k", 0)]


def test_all_rules_are_told_at_once():
    found = broken((0, 2, 1), (3, 3, 4), (5, 4, 3), (8, 8, 8))
    assert places(found) == [("profile_invalid", 0, "x", axis) for axis in (0, 0, 1, 2, 2)]


def test_the_largest_extent_and_volume():
    line = tensor("x", None)
    assert check_profiles([{"x": ranged((1, 1, LARGEST_EXTENT))}], [line]) == []
    assert places(check_profiles([{"x": ranged((1, 1, LARGEST_EXTENT + 1))}], [line])) == [
        ("profile_invalid", 0, "x", 0)
    ]
    plane = tensor("x", None, None)
    assert check_profiles([{"x": ranged((1, 1, 2**16), (1, 1, 2**15 - 1))}], [plane]) == []
    (found,) = check_profiles([{"x": ranged((1, 1, 2**16), (1, 1, 2**15))}], [plane])
    assert found.where == {"profile": 0, "input": "x"}
    assert "TensorRT" in found.message
    assert "2^31" in found.message


def test_axes_that_share_a_name_share_a_range():
    one, other = tensor("a", None, axes=("batch",)), tensor("b", 2, None, axes=(None, "batch"))
    fine = {"a": ranged((1, 2, 4)), "b": ranged((2, 2, 2), (1, 2, 4))}
    assert check_profiles([fine], [one, other]) == []
    for triple in ((1, 2, 3), (1, 1, 4), (2, 2, 4)):
        found = check_profiles([fine, {**fine, "b": ranged((2, 2, 2), triple)}], [one, other])
        assert places(found) == [("profile_invalid", 1, "b", 1)]
        assert "'batch'" in found[0].message
        assert "a axis 0" in found[0].message


def test_within_one_input_too():
    square = tensor("x", None, None, axes=("?", "?"))
    assert places(check_profiles([{"x": ranged((1, 2, 4), (1, 2, 8))}], [square])) == [("profile_invalid", 0, "x", 1)]


def test_each_profile_may_have_its_own_range():
    line = tensor("x", None, axes=("n",))
    assert check_profiles([{"x": ranged((1, 2, 4))}, {"x": ranged((5, 6, 7))}], [line]) == []


VALUES = Tensor(name="s", dtype="int64", shape=(2,), axes=(None,), shape_values=True)


def valued(*triples):
    return ranged(*triples).model_copy(update={"values": True})


def test_shape_values_are_required_by_name():
    assert [(t.code, t.where) for t in check_profiles([], [VALUES])] == [("shape_values_required", {"input": "s"})]
    found = check_profiles([{}, {"s": ranged((1, 2, 3), (1, 2, 3))}], [VALUES])
    assert places(found) == [("shape_values_required", 0, "s", None), ("shape_values_required", 1, "s", None)]


def test_shape_values_may_be_of_any_sign():
    assert check_profiles([{"s": valued((-1, 0, 4), (2, 2, 2))}], [VALUES]) == []
    scalar = VALUES.model_copy(update={"shape": (), "axes": ()})
    assert check_profiles([{"s": valued((0, 1, 2))}], [scalar]) == []


@pytest.mark.parametrize("triple", [(2, 1, 3), (1, 3, 2), (-(2**40), 0, 0), (0, 0, 2**31)])
def test_shape_values_out_of_order_or_range(triple):
    assert places(check_profiles([{"s": valued((1, 1, 1), triple)}], [VALUES])) == [("profile_invalid", 0, "s", 1)]


def test_as_many_values_as_the_input_holds():
    (found,) = check_profiles([{"s": valued((1, 1, 1))}], [VALUES])
    assert "holds 2 values" in found.message
    loose = VALUES.model_copy(update={"shape": (None,)})
    (found,) = check_profiles([{"s": valued((1, 1, 1))}], [loose])
    assert "fixed number of values" in found.message


def test_values_of_an_input_that_cannot_decide_shapes():
    (found,) = check_profiles([{"x": valued(*GOOD)}], [IMAGE])
    assert places([found]) == [("profile_invalid", 0, "x", None)]


def test_a_shape_of_more_axes_than_tensorrt_has():
    (found,) = check_profiles([{"any": ranged(*[(1, 1, 1)] * 9)}], [UNRANKED])
    assert "at most 8" in found.message

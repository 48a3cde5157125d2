"""Which engine a machine may load, field by field; looser policies allow all that stricter ones do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.compatibility import POLICIES, allows, needed, objections, spec_objections, to_build_for
from tests.domain.test_key import SPEC
from tests.domain.test_targets import KNOWN, L40S, RTX
from trtforge.contract.spec import EffectiveSpec
from trtforge.contract.target import Target, TargetSelector

BOUND = Target(
    builder="tensorrt",
    builder_version="11.4.0",
    gpu="NVIDIA L40S",
    compute_capabilities=("8.9",),
    driver="580.159.04",
    cuda="13.0",
    os="linux",
    arch="x86_64",
)
PORTABLE = Target(
    builder="tensorrt_rtx", builder_version="1.7.1", compute_capabilities=("8.6", "8.9"), os="linux", arch="x86_64"
)

capability = st.sampled_from(["8.6", "8.9", "9.0", "12.0"])
common = {
    "builder_version": st.sampled_from(["1.7.1", "11.4.0"]),
    "os": st.sampled_from(["linux", "windows"]),
    "arch": st.sampled_from(["x86_64", "aarch64"]),
}
own = {
    "gpu": st.sampled_from(["NVIDIA L40S", "NVIDIA A10"]),
    "driver": st.sampled_from(["580.159.04", "580.12", "570.86"]),
    "cuda": st.sampled_from(["13.0", "12.8"]),
    "mig_profile": st.sampled_from([None, "1g.5gb"]),
}
bound = st.builds(
    Target, builder=st.just("tensorrt"), compute_capabilities=capability.map(lambda c: (c,)), **common, **own
)
portable = st.builds(
    Target,
    builder=st.just("tensorrt_rtx"),
    compute_capabilities=st.sets(capability, min_size=1).map(lambda s: tuple(sorted(s))),
    **common,
)
machines = st.builds(
    TargetSelector,
    builder=st.sampled_from([None, "tensorrt", "tensorrt_rtx"]),
    compute_capabilities=st.none() | capability.map(lambda c: (c,)),
    **{name: st.none() | values for name, values in (common | own).items()},
)


def fields(have: Target, **machine: Any) -> dict[str, Any]:
    return {o.field: o.needs for o in objections(have, TargetSelector(**machine))}


def itself(target: Target) -> dict[str, Any]:
    return target.model_dump()


@given(bound | portable)
def test_an_engine_fits_the_machine_it_was_made_for(target):
    assert needed(objections(target, TargetSelector(**target.model_dump()))) == "exact"


@given(bound | portable, machines)
def test_a_looser_policy_takes_all_that_a_stricter_one_takes(have, machine):
    taken = [allows(policy, needed(objections(have, machine))) for policy in POLICIES]
    assert taken == sorted(taken)


@given(bound | portable, machines)
def test_every_objection_names_a_field_and_both_sides(have, machine):
    for one in objections(have, machine):
        assert (one.have, one.asked) == (getattr(have, one.field), getattr(machine, one.field))
        assert one.have != one.asked
        assert one.why


@given(bound, st.data())
def test_one_other_field_of_the_machine_is_the_one_objection(have, data):
    other = data.draw(bound)
    field = data.draw(st.sampled_from(sorted(own | common)))
    machine = {**itself(have), field: getattr(other, field)}
    wanted = [] if getattr(other, field) == getattr(have, field) else [field]
    assert list(fields(have, **machine)) == wanted


@pytest.mark.parametrize(
    ("field", "other", "needs"),
    [
        ("gpu", "NVIDIA A10", "same_compute_capability"),
        ("driver", "580.12", "same_driver_branch"),
        ("driver", "570.86", "same_compute_capability"),
        ("driver", None, "same_compute_capability"),
        ("cuda", "12.8", "same_driver_branch"),
        ("mig_profile", "1g.5gb", "same_compute_capability"),
        ("compute_capabilities", ("9.0",), None),
        ("builder_version", "11.4.1", None),
        ("builder", "tensorrt_rtx", None),
        ("os", "windows", None),
        ("arch", "aarch64", None),
    ],
)
def test_what_each_field_of_a_bound_plan_needs(field, other, needs):
    assert fields(BOUND, **{**itself(BOUND), field: other}) == {field: needs}


def test_what_a_probe_can_say_is_enough_for_a_bound_plan():
    assert fields(BOUND, gpu=BOUND.gpu, driver=BOUND.driver) == {}
    assert None in fields(BOUND).values()  # a machine that says nothing of itself gets nothing that is bound


def test_a_portable_plan_asks_only_for_its_version_and_compute_capability():
    machine = {"gpu": "NVIDIA L40S", "driver": "570.86", "cuda": "12.8", "os": "linux"}
    assert fields(PORTABLE, **machine, compute_capabilities=("8.9",)) == {}
    assert fields(PORTABLE, **machine) == {}
    assert fields(PORTABLE, **machine, compute_capabilities=("9.0",)) == {"compute_capabilities": None}
    assert fields(PORTABLE, builder="tensorrt_rtx", builder_version="1.6") == {"builder_version": None}


def test_a_machine_with_another_builder_takes_a_portable_plan_only_when_it_says_so():
    assert fields(PORTABLE, **itself(BOUND)) == {"builder": "portable"}


@given(st.sampled_from(sorted(EffectiveSpec.model_fields)), st.data())
def test_no_policy_overlooks_another_spec(field, data):
    have = SPEC.model_dump(mode="json")
    other = have | {field: [] if field == "profiles" else data.draw(st.integers(99, 999))}
    found = spec_objections(have, other)
    assert found
    assert {one.field.partition(".")[0] for one in found} == {field}
    assert needed(found) is None
    assert spec_objections(have, have) == ()


def test_what_to_build_for_a_machine():
    assert to_build_for(TargetSelector(), KNOWN) == TargetSelector(builder="tensorrt_rtx")
    gpu = TargetSelector(gpu="NVIDIA L40S", driver="570", compute_capabilities=("8.9",))
    assert to_build_for(gpu, KNOWN) == TargetSelector(builder="tensorrt_rtx")
    ours = TargetSelector(builder="tensorrt", gpu="NVIDIA L40S", driver="580.1", compute_capabilities=("8.9",))
    assert to_build_for(ours, [RTX, L40S]) == TargetSelector(**L40S.target.model_dump())
    older = TargetSelector(builder="tensorrt_rtx", builder_version="1.6", compute_capabilities=("8.9",))
    assert to_build_for(older, KNOWN) == older  # a submit of that says which versions there are
    foreign = TargetSelector(builder="tensorrt", gpu="NVIDIA A10", driver="1")
    assert to_build_for(foreign, KNOWN) == foreign


def test_spec_and_target_share_no_field_name():
    assert not set(EffectiveSpec.model_fields) & set(Target.model_fields)

"""A selector means one known target or is refused with the list."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.effective import effective
from app.domain.targets import choose
from app.errors import Refused
from trtforge.contract.spec import BuildSpec, EffectiveSpec, ShapeRange
from trtforge.contract.target import Capabilities, KnownTarget, SpecDefaults, Target, TargetSelector

ALL = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
DEFAULTS = SpecDefaults(precision="as_is", optimization_level=3, workspace_bytes=1 << 30)


def known(id: str, portable: bool, default: bool = False, **fields: Any) -> KnownTarget:
    own = ALL if portable else ("8.9",)
    values: dict[str, Any] = {
        "builder": "tensorrt_rtx" if portable else "tensorrt",
        "builder_version": "1.7.1.116",
        "compute_capabilities": own,
        "os": "linux",
        "arch": "x86_64",
    }
    can = Capabilities(
        precisions=("as_is",),
        optimization_level=(0, 5),
        workspace_bytes=(1, 1 << 40),
        compute_capabilities=own,
        opset=22,
        needs_gpu=not portable,
        timing_cache=not portable,
        portable=portable,
        defaults=DEFAULTS,
    )
    return KnownTarget(
        id=id,
        target=Target(**(values | fields)),
        default=default,
        workers=1,
        last_seen=datetime(2026, 1, 1, tzinfo=UTC),
        queue_length=0,
        capabilities=can,
    )


RTX = known("tgt_rtx", True, default=True)
L40S = known("tgt_l40s", False, gpu="NVIDIA L40S", driver="580.1", cuda="13.0")
SLICE = known("tgt_slice", False, gpu="NVIDIA L40S", driver="580.1", cuda="13.0", mig_profile="1g.5gb")
KNOWN = [RTX, L40S, SLICE]


def refused(selector: TargetSelector, among: list[KnownTarget] = KNOWN) -> Refused:
    with pytest.raises(Refused) as caught:
        choose(selector, among)
    assert [t["id"] for t in caught.value.extra["targets"]] == [k.id for k in among]
    assert [e.code for e in caught.value.errors] == [caught.value.code]
    return caught.value


def test_an_empty_selector_takes_the_default():
    assert choose(TargetSelector(), KNOWN) == (RTX, RTX.target)
    assert choose(TargetSelector(gpu=None, driver=None), [L40S, RTX]) == (RTX, RTX.target)


def test_the_only_target_is_the_default():
    assert choose(TargetSelector(), [L40S]) == (L40S, L40S.target)


def test_without_targets_or_without_a_default_among_several_it_says_so():
    assert refused(TargetSelector(), []).code == "target_unknown"
    assert refused(TargetSelector(), [L40S, SLICE]).code == "target_ambiguous"


@pytest.mark.parametrize("one", KNOWN, ids=lambda k: k.id)
def test_a_full_fingerprint_copied_from_the_list_names_its_target(one):
    assert choose(TargetSelector(**one.target.model_dump()), KNOWN) == (one, one.target)


def test_a_full_fingerprint_never_means_a_target_that_differs_in_a_null():
    whole_gpu = TargetSelector(**L40S.target.model_dump())
    assert refused(whole_gpu, [RTX, SLICE]).code == "target_unknown"


@pytest.mark.parametrize("name", [n for n in Target.model_fields if n != "compute_capabilities"])
def test_every_field_is_compared(name):
    error = refused(TargetSelector(**{name: "tensorrt" if name == "builder" else "other"}), [RTX])
    assert error.code == "target_unknown"
    assert name in (error.detail or "")


def test_several_that_fit_are_ambiguous_also_when_one_is_the_default():
    error = refused(TargetSelector(os="linux"))
    assert error.code == "target_ambiguous"
    assert "tgt_rtx, tgt_l40s, tgt_slice" in error.detail


def test_a_portable_target_takes_any_subset_sorted_by_number_and_unique():
    one, exact = choose(
        TargetSelector(builder="tensorrt_rtx", compute_capabilities=("12.0", "8.9", "7.5", "8.9")), KNOWN
    )
    assert one is RTX
    assert exact.compute_capabilities == ("7.5", "8.9", "12.0")
    assert exact == RTX.target.model_copy(update={"compute_capabilities": exact.compute_capabilities})


def test_compute_capabilities_alone_may_single_out_a_target():
    assert choose(TargetSelector(compute_capabilities=("8.6",)), KNOWN)[0] is RTX
    assert refused(TargetSelector(compute_capabilities=("8.9",))).code == "target_ambiguous"


@pytest.mark.parametrize(
    "asked", [(), ("9.0",), ("8.9", "9.0"), ("sm_89",), ("89",), ("8.9 ",), ("08.9",), ("8.9.0",), ("",)]
)
def test_unsupported_compute_capabilities_are_refused_with_what_there_is(asked):
    error = refused(TargetSelector(builder="tensorrt_rtx", compute_capabilities=asked))
    assert error.code == "target_unsupported"
    assert error.status == 422


def test_what_can_be_asked_for_is_listed():
    error = refused(TargetSelector(builder="tensorrt_rtx", compute_capabilities=("9.0",)))
    assert "any of 7.5, 8.0, 8.6, 8.9, 12.0, 12.1" in error.detail


def test_a_bound_target_takes_exactly_its_own():
    only = TargetSelector(builder="tensorrt", compute_capabilities=("8.9",))
    assert choose(only, [RTX, L40S]) == (L40S, L40S.target)
    error = refused(TargetSelector(builder="tensorrt", compute_capabilities=("8.6",)), [RTX, L40S])
    assert error.code == "target_unsupported"
    assert "exactly 8.9" in error.detail


def test_the_effective_spec_is_the_wish_with_constant_defaults():
    nothing = effective(BuildSpec(), RTX.capabilities)
    assert nothing == EffectiveSpec(profiles=(), precision="as_is", optimization_level=3, workspace_bytes=1 << 30)
    profile = {"x": ShapeRange(min=(1,), opt=(1,), max=(2,))}
    asked = BuildSpec(profiles=(profile,), precision="fp16", optimization_level=0, workspace_bytes=5)
    assert effective(asked, RTX.capabilities).model_dump() == asked.model_dump()
    able = RTX.capabilities.model_copy(update={"plugins": {"a": "sha256:a", "b": "sha256:b"}})
    twice = effective(asked.model_copy(update={"plugins": ("b", "a", "b")}), able).plugins or ()
    assert [(plugin.name, plugin.digest) for plugin in twice] == [("a", "sha256:a"), ("b", "sha256:b")]


def test_every_field_of_a_build_spec_reaches_the_effective_spec():
    assert set(BuildSpec.model_fields) == set(EffectiveSpec.model_fields)

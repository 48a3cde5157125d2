"""What differs, by the names a reader knows."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.domain.differences import differences
from trtforge.contract.spec import EffectiveSpec, ShapeRange


def spec(**change: Any) -> EffectiveSpec:
    same: dict[str, Any] = {"profiles": (), "precision": "as_is", "optimization_level": 3, "workspace_bytes": 1}
    return EffectiveSpec(**(same | change))


def ranged(high: tuple[int, ...]) -> tuple[dict[str, ShapeRange], ...]:
    return ({"x": ShapeRange(min=(1, 3), opt=(1, 3), max=high)},)


def told(have: EffectiveSpec, asked: EffectiveSpec) -> list[tuple[str, Any, Any]]:
    return [(d.field, d.have, d.asked) for d in differences(have, asked)]


def test_each_field_is_named_by_its_path_and_sorted() -> None:
    have = spec(optimization_level=1, profiles=ranged((4, 3)), workspace_bytes=2)
    assert told(have, spec(profiles=ranged((8, 3)))) == [
        ("optimization_level", 1, 3),
        ("profiles.0.x.max.0", 4, 8),
        ("workspace_bytes", 2, 1),
    ]


def test_what_only_one_has_is_there_against_nothing() -> None:
    found = told(spec(profiles=ranged((4, 3))), spec())
    assert ("profiles.0.x.max.0", 4, None) in found
    assert {field.split(".")[0] for field, _, _ in found} == {"profiles"}
    assert [(f, b, a) for f, a, b in found] == told(spec(), spec(profiles=ranged((4, 3))))


levels = st.builds(spec, optimization_level=st.integers(0, 5), workspace_bytes=st.integers(1, 3))


@given(levels, levels)
def test_nothing_differs_only_when_equal(one: EffectiveSpec, other: EffectiveSpec) -> None:
    assert (differences(one, other) == ()) == (one == other)

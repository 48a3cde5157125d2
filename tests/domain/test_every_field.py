"""By reflection over the types: whatever field a spec, a target or a profile has or gets, it is in the key and the diff."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app.domain.comparison import compare
from app.domain.differences import differences
from tests.domain.manifests import manifest
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge.contract.spec import EffectiveSpec, ShapeRange
from trtforge.contract.target import Target

SHAPES = SPEC.profiles[0]["x"]


def values(owner: type[BaseModel], field: str) -> st.SearchStrategy[Any]:
    """Any value that the field's type takes; a type that hypothesis cannot make fails the test, so it is not forgotten."""
    kind = owner.model_fields[field].annotation
    if field == "profiles":
        return st.just(SPEC.profiles).map(_with_another_axis)
    if owner is ShapeRange and kind is not bool:
        return st.lists(st.integers(0, 99), min_size=2, max_size=2).map(tuple)
    return st.from_type(kind).filter(lambda value: not isinstance(value, float))  # type: ignore[arg-type]


def _with_another_axis(profiles: Any) -> Any:
    changed = profiles[0]["x"].model_copy(update={"max": (9, 3)})
    return ({**profiles[0], "x": changed},)


def fields() -> Iterator[tuple[type[BaseModel], str]]:
    for owner in (EffectiveSpec, Target, ShapeRange):
        for field in owner.model_fields:
            yield owner, field


def _changed(owner: type[BaseModel], field: str, value: Any) -> tuple[EffectiveSpec, Target]:
    if owner is Target:
        return SPEC, TARGET.model_copy(update={field: value})
    if owner is EffectiveSpec:
        return SPEC.model_copy(update={field: value}), TARGET
    shapes = SHAPES.model_copy(update={field: value})
    return SPEC.model_copy(update={"profiles": ({**SPEC.profiles[0], "x": shapes},)}), TARGET


def _have(owner: type[BaseModel], field: str) -> Any:
    return getattr({Target: TARGET, EffectiveSpec: SPEC, ShapeRange: SHAPES}[owner], field)


@pytest.mark.parametrize(("owner", "field"), list(fields()), ids=lambda part: getattr(part, "__name__", part))
@given(draw=st.data())
def test_any_other_value_of_any_one_field_changes_the_key_and_only_that_field_is_named(
    owner: type[BaseModel], field: str, draw: st.DataObject
):
    have = _have(owner, field)
    other = draw.draw(values(owner, field).filter(lambda value: value != have))
    spec, target = _changed(owner, field, other)
    one, two = manifest(MODEL, SPEC, TARGET), manifest(MODEL, spec, target)
    assert one.engine_key != two.engine_key
    path = f"profiles.0.x.{field}" if owner is ShapeRange else field
    named = [c.field for changes in compare(one, two).groups.values() for c in changes]
    assert named
    assert all(name == path or name.startswith(f"{path}.") for name in named), named
    told = {d.field for d in (*differences(SPEC, spec), *differences(TARGET, target))}
    assert told == set(named)


@given(st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True).filter(lambda model: model != MODEL))
def test_another_model_changes_the_key_and_is_what_is_named(model: str):
    one, two = manifest(MODEL, SPEC, TARGET), manifest(model, SPEC, TARGET)
    assert one.engine_key != two.engine_key
    assert [c.field for changes in compare(one, two).groups.values() for c in changes] == ["model"]

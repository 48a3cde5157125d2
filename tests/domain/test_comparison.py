"""Change one thing, and the key changes and the diff names exactly that thing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.comparison import compare
from app.domain.differences import differences
from app.domain.key import engine_key
from tests.domain.manifests import LOADED, manifest
from tests.domain.test_key import MODEL, OTHER_SPEC, OTHER_TARGET, SPEC, TARGET
from trtforge.contract.engines import Memory, PlanRef, Precision, Timings
from trtforge.contract.spec import EffectiveSpec, ShapeRange
from trtforge.contract.target import Target
from trtforge.contract.words import in_words

OTHER_MODEL = "sha256:" + "cd" * 32

Named = tuple[str, EffectiveSpec, Target, str]  # model, spec, target, and the field that changed

names = st.text(min_size=1, max_size=8) | st.sampled_from(["input.1", "profiles.0.x", "max", "1", "x.max.0"])


def _another(draw: Any, value: Any) -> Any:
    return draw(st.text("aé.0 ", max_size=12).filter(lambda other: other != value))


@st.composite
def changed(draw: Any) -> Named:
    """Change any one field of model, spec or target."""
    where = draw(st.sampled_from(["model", "spec", "target", "extent", "values"]))
    if where == "model":
        return OTHER_MODEL, SPEC, TARGET, "model"
    if where == "target":
        field = draw(st.sampled_from(sorted(set(Target.model_fields) - {"builder", "compute_capabilities"})))
        return MODEL, SPEC, TARGET.model_copy(update={field: _another(draw, getattr(TARGET, field))}), field
    if where == "spec":
        field = draw(st.sampled_from(["precision", "optimization_level", "workspace_bytes"]))
        other = _another(draw, SPEC.precision) if field == "precision" else draw(st.integers(6, 99))
        return MODEL, SPEC.model_copy(update={field: other}), TARGET, field
    name = draw(st.sampled_from(["x", "ids"]))
    shapes = SPEC.profiles[0][name]
    if where == "values":
        other_range, field = shapes.model_copy(update={"values": True}), f"profiles.0.{name}.values"
    else:
        corner = draw(st.sampled_from(["min", "opt", "max"]))
        extents = list(getattr(shapes, corner))
        axis = draw(st.integers(0, len(extents) - 1))
        extents[axis] = draw(st.integers(100, 1 << 40))
        other_range, field = shapes.model_copy(update={corner: tuple(extents)}), f"profiles.0.{name}.{corner}.{axis}"
    return MODEL, SPEC.model_copy(update={"profiles": ({**SPEC.profiles[0], name: other_range},)}), TARGET, field


@given(changed())
def test_one_change_gives_another_key_and_the_diff_names_exactly_it(case):
    model, spec, target, field = case
    one, other = manifest(MODEL, SPEC, TARGET), manifest(model, spec, target)
    assert one.engine_key != other.engine_key
    found = compare(one, other)
    assert [change.field for changes in found.groups.values() for change in changes] == [field]


@pytest.mark.parametrize(
    ("field", "other", "group"),
    [(f, OTHER_SPEC[f], {"profiles": "shapes", "precision": "precision"}.get(f, "options")) for f in OTHER_SPEC]
    + [(f, OTHER_TARGET[f], "builder" if f.startswith("builder") else "target") for f in OTHER_TARGET],
)
def test_every_field_of_spec_and_target_has_its_group(field, other, group):
    spec, target = SPEC, TARGET
    if field in EffectiveSpec.model_fields:
        spec = SPEC.model_copy(update={field: other})
    else:
        target = TARGET.model_copy(update={field: other})
    found = compare(manifest(MODEL, SPEC, TARGET), manifest(MODEL, spec, target))
    assert list(found.groups) == [group]
    assert all(change.field.partition(".")[0] == field for change in found.groups[group])


profiles = st.dictionaries(
    names,
    st.builds(ShapeRange, **{c: st.lists(st.integers(0, 3), max_size=3).map(tuple) for c in ("min", "opt", "max")}),
)
specs = st.lists(profiles, max_size=3).map(lambda p: SPEC.model_copy(update={"profiles": tuple(p)}))


@given(specs, specs)
def test_two_specs_differ_exactly_when_their_keys_do(one, other):
    same_key = engine_key(MODEL, one, TARGET) == engine_key(MODEL, other, TARGET)
    assert (differences(one, other) == ()) == same_key


@given(specs, specs)
def test_a_diff_turned_round_is_the_same_diff(one, other):
    there, back = differences(one, other), differences(other, one)
    assert [(d.field, d.have, d.asked) for d in there] == [(d.field, d.asked, d.have) for d in back]


def test_what_is_made_and_what_came_out_is_told_apart():
    one = manifest(MODEL, SPEC, TARGET)
    other = manifest(
        MODEL,
        SPEC,
        TARGET,
        plan=PlanRef(digest="sha256:" + "2" * 64, size=2000),
        timings=Timings(stages={"build": 4.5}, phases=()),
        memory=Memory(weights_bytes=1, activation_bytes=20, scratch_bytes=3),
        precision=Precision(requested="as_is", achieved={"float32": 8, "float16": 1}),
        calibration={"method": "entropy"},
        tools={"onnx": "1.24"},
    )
    found = compare(one, other)
    assert not found.same_plan
    assert {group: [c.field for c in changes] for group, changes in found.groups.items()} == {
        "precision": ["achieved.float16", "achieved.float32"],
        "builder": ["tools.onnx"],
        "calibration": ["calibration"],
        "performance": ["activation_bytes", "build_s", "plan_size"],
    }


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (("driver", "570.86", "580.12"), "driver 570.86 → 580.12"),
        (("profiles.0.x.max.0", 8, 16), "max of `x` axis 0: 8 → 16"),
        (("profiles.2.input.1.min.3", None, 16), "min of `input.1` axis 3 in profile 2: none → 16"),
        (("profiles.0.x.values", False, True), "values of `x`: no → yes"),
        (("compute_capabilities", ["8.6", "8.9"], ["8.9"]), "compute_capabilities 8.6, 8.9 → 8.9"),
        (("model", MODEL, OTHER_MODEL), "model sha256:abababababab… → sha256:cdcdcdcdcdcd…"),
    ],
)
def test_differences_in_words(difference, words):
    assert in_words(*difference) == words


def test_loaded_engines_differ_in_the_types_of_layers_and_by_their_figures():
    def loaded(**changes: Any) -> Any:
        return manifest(MODEL, SPEC, TARGET, loaded=LOADED.model_copy(update=changes))

    faster = LOADED.measurements[1].model_copy(update={"throughput_per_s": 10.0})
    other = loaded(
        layers={"conv.1": "float32", "relu": None},
        measurements=(LOADED.measurements[0], faster),
        memory=LOADED.memory.model_copy(update={"profiles": (7, 8)}),
        inspector=None,
        seconds=9.0,
    )
    found = compare(loaded(), other).groups
    assert {group: [change.field for change in changes] for group, changes in found.items()} == {
        "precision": ["layers.conv.1"],
        "performance": ["contexts.2_graphs.throughput_per_s", "gpu_memory.profiles.1"],
    }
    assert compare(manifest(MODEL, SPEC, TARGET), other).groups == {}  # one says nothing, and so does a rebuild

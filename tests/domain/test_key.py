"""Each field changes the key, order never does, and nobody changes keys by accident."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.key import KEY_SCHEMA, engine_key
from trtforge.contract.spec import EffectiveSpec, Plugin, ShapeRange
from trtforge.contract.target import Target

MODEL = "sha256:" + "ab" * 32
SPEC = EffectiveSpec(
    profiles=(
        {
            "x": ShapeRange(min=(1, 3), opt=(2, 3), max=(4, 3)),
            "ids": ShapeRange(min=(1,), opt=(2,), max=(4,)),
        },
    ),
    precision="as_is",
    optimization_level=3,
    workspace_bytes=1 << 30,
)
TARGET = Target(
    builder="tensorrt_rtx",
    builder_version="1.7.1.116",
    compute_capabilities=("8.6", "8.9"),
    os="linux",
    arch="x86_64",
)

OTHER_SPEC: dict[str, Any] = {
    "profiles": (),
    "precision": "fp16",
    "optimization_level": 4,
    "workspace_bytes": 1 << 31,
    "plugins": (Plugin(name="p", digest="sha256:" + "ef" * 32),),
    "hardware_compatibility": "ampere_plus",
    "version_compatible": True,
    "refit": "all",
    "stripped_plan": True,
    "weight_streaming": True,
    "sparsity": True,
    "tactic_dram_bytes": 1 << 20,
    "tactic_shared_memory_bytes": 1 << 10,
    "tactic_sources": ("jit_convolutions",),
    "plugins_to_serialize": ("p",),
    "profiling_verbosity": "detailed",
    "refitted_from": "sha256:" + "ab" * 32,
}
OTHER_TARGET: dict[str, Any] = {
    "builder": "tensorrt",
    "builder_version": "1.7.1.117",
    "gpu": "NVIDIA L40S",
    "compute_capabilities": ("8.9",),
    "driver": "580.159.04",
    "cuda": "13.0",
    "mig_profile": "1g.10gb",
    "os": "windows",
    "arch": "aarch64",
}
OTHER_RANGE: dict[str, Any] = {"min": (2, 3), "opt": (3, 3), "max": (8, 3), "values": True}


def test_the_key_of_a_known_wish_stays_what_it_was():
    canonical = (
        '{"key_schema":1,"model":"sha256:abababababababababababababababababababababababababababababababab",'
        '"spec":{"optimization_level":3,"precision":"as_is","profiles":[{'
        '"ids":{"max":[4],"min":[1],"opt":[2],"values":false},'
        '"x":{"max":[4,3],"min":[1,3],"opt":[2,3],"values":false}}],"workspace_bytes":1073741824},'
        '"target":{"arch":"x86_64","builder":"tensorrt_rtx","builder_version":"1.7.1.116",'
        '"compute_capabilities":["8.6","8.9"],"cuda":null,"driver":null,"gpu":null,"mig_profile":null,"os":"linux"}}'
    )
    assert KEY_SCHEMA == 1
    assert engine_key(MODEL, SPEC, TARGET) == "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
    assert engine_key(MODEL, SPEC, TARGET) == "sha256:e6614ec4064698f7d41cac306f0d65ddefd4083e48dcbf2721c3030a57df0ee9"


@pytest.mark.parametrize("name", EffectiveSpec.model_fields)
def test_every_field_of_the_spec_changes_the_key(name):
    other = SPEC.model_copy(update={name: OTHER_SPEC[name]})
    assert engine_key(MODEL, other, TARGET) != engine_key(MODEL, SPEC, TARGET)


@pytest.mark.parametrize("name", Target.model_fields)
def test_every_field_of_the_target_changes_the_key(name):
    other = TARGET.model_copy(update={name: OTHER_TARGET[name]})
    assert engine_key(MODEL, SPEC, other) != engine_key(MODEL, SPEC, TARGET)


@pytest.mark.parametrize("name", ShapeRange.model_fields)
def test_every_field_of_a_shape_range_changes_the_key(name):
    changed = SPEC.profiles[0]["x"].model_copy(update={name: OTHER_RANGE[name]})
    other = SPEC.model_copy(update={"profiles": ({**SPEC.profiles[0], "x": changed},)})
    assert engine_key(MODEL, other, TARGET) != engine_key(MODEL, SPEC, TARGET)


def test_the_model_changes_the_key():
    assert engine_key("sha256:" + "cd" * 32, SPEC, TARGET) != engine_key(MODEL, SPEC, TARGET)


extents = st.lists(st.integers(1, 64), min_size=0, max_size=4).map(tuple)
ranges = extents.map(lambda e: ShapeRange(min=e, opt=e, max=e))
profiles = st.dictionaries(st.text(min_size=1, max_size=8), ranges, max_size=5)
specs = st.builds(
    EffectiveSpec,
    profiles=st.lists(profiles, max_size=3).map(tuple),
    precision=st.sampled_from(["as_is", "fp16"]),
    optimization_level=st.integers(0, 5),
    workspace_bytes=st.integers(1, 1 << 40),
)


@given(specs)
def test_the_order_of_inputs_in_a_profile_means_nothing(spec):
    turned = tuple(dict(reversed(p.items())) for p in spec.profiles)
    assert engine_key(MODEL, spec.model_copy(update={"profiles": turned}), TARGET) == engine_key(MODEL, spec, TARGET)


@given(specs, specs)
def test_two_specs_share_a_key_only_when_they_are_equal(one, other):
    assert (engine_key(MODEL, one, TARGET) == engine_key(MODEL, other, TARGET)) == (one == other)


@given(st.lists(profiles, min_size=2, max_size=3, unique_by=repr))
def test_the_order_of_profiles_counts_because_tensorrt_numbers_them(several):
    one = SPEC.model_copy(update={"profiles": tuple(several)})
    other = SPEC.model_copy(update={"profiles": tuple(reversed(several))})
    assert (one == other) == (engine_key(MODEL, one, TARGET) == engine_key(MODEL, other, TARGET))


@given(specs)
def test_a_key_survives_the_wire(spec):
    again = EffectiveSpec.model_validate_json(spec.model_dump_json())
    target = Target.model_validate_json(TARGET.model_dump_json())
    assert engine_key(MODEL, again, target) == engine_key(MODEL, spec, TARGET)

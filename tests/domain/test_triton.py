"""The configuration for Triton, read back by Triton's own protobuf schema."""

import importlib.util
import sys
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from app.domain.triton import TYPES, config_of, name_of
from app.errors import Refused
from tests.domain.manifests import manifest
from tests.domain.test_key import MODEL, SPEC, TARGET
from trtforge.contract.models import Tensor
from trtforge.contract.spec import OptimizationProfile, ShapeRange


def _schema() -> Any:
    """Load the schema alone: the client around it needs packages of its own."""
    path = next(f for f in files("tritonclient") or () if str(f) == "tritonclient/grpc/model_config_pb2.py")
    spec = importlib.util.spec_from_file_location("model_config_pb2", Path(str(path.locate())))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_config_pb2"] = module
    spec.loader.exec_module(module)
    return module


SCHEMA = _schema()


def tensor(name: str, *shape: int | None, dtype: str = "float32", batch: str | None = "n", **more: Any) -> Tensor:
    axes = tuple(batch if axis == 0 and extent is None else None for axis, extent in enumerate(shape))
    return Tensor(name=name, dtype=dtype, shape=shape, axes=axes, **more)


def profile(**highest: tuple[int, ...]) -> OptimizationProfile:
    low = {name: tuple(1 for _ in high) for name, high in highest.items()}
    return {name: ShapeRange(min=low[name], opt=high, max=high) for name, high in highest.items()}


def read(inputs: list[Tensor], outputs: list[Tensor], *profiles: OptimizationProfile, name: str = "m") -> Any:
    spec = SPEC.model_copy(update={"profiles": profiles})
    text = config_of(manifest(MODEL, spec, TARGET), name, inputs, outputs)
    return text_format.Parse(text, SCHEMA.ModelConfig())


def test_every_field_is_one_of_tritons_and_says_what_the_engine_has():
    inputs = [tensor("x", None, 3, 224, None), tensor("mask", None, 7, dtype="bool")]
    config = read(inputs, [tensor("y", None, 1000, dtype="float16")], profile(x=(8, 3, 224, 448), mask=(8, 7)))
    assert (config.name, config.platform, config.backend) == ("m", "tensorrt_plan", "tensorrt")
    assert config.default_model_filename == "model.plan"
    assert config.max_batch_size == 8
    assert [(i.name, list(i.dims), i.data_type) for i in config.input] == [
        ("x", [3, 224, -1], SCHEMA.TYPE_FP32),
        ("mask", [7], SCHEMA.TYPE_BOOL),
    ]
    assert [(o.name, list(o.dims), o.data_type) for o in config.output] == [("y", [1000], SCHEMA.TYPE_FP16)]
    assert not config.instance_group


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_is_one_of_tritons(dtype: str):
    config = read([tensor("x", 1, dtype=dtype)], [tensor("y", 1, dtype=dtype)])
    assert SCHEMA.DataType.Name(config.input[0].data_type) == TYPES[dtype]


WHOLE = {
    "nothing open": ([tensor("x", 1, 3)], [tensor("y", 1, 3)], ()),
    "no profile": ([tensor("x", None, 3)], [tensor("y", None, 3)], ()),
    "one input is fixed": (
        [tensor("x", None, 3), tensor("w", 4)],
        [tensor("y", None, 3)],
        (profile(x=(8, 3)),),
    ),
    "an output is fixed": ([tensor("x", None, 3)], [tensor("y", 10, 3)], (profile(x=(8, 3)),)),
    "axes of other names": (
        [tensor("x", None, 3)],
        [tensor("y", None, 3, batch="found")],
        (profile(x=(8, 3)),),
    ),
    "a least batch above one": (
        [tensor("x", None, 3)],
        [tensor("y", None, 3)],
        ({"x": ShapeRange(min=(2, 3), opt=(4, 3), max=(8, 3))},),
    ),
    "shape values": (
        [tensor("x", None, 3), tensor("s", None, dtype="int64", shape_values=True)],
        [tensor("y", None, 3)],
        (profile(x=(8, 3), s=(2,)),),
    ),
    "a scalar": ([tensor("x", None, 3), tensor("t")], [tensor("y", None, 3)], (profile(x=(8, 3)),)),
}


@pytest.mark.parametrize("why", WHOLE)
def test_triton_batches_only_what_has_one_open_batch_everywhere(why: str):
    inputs, outputs, profiles = WHOLE[why]
    config = read(inputs, outputs, *profiles)
    assert config.max_batch_size == 0
    for known, said in zip([*inputs, *outputs], [*config.input, *config.output], strict=True):
        assert known.shape is not None
        assert list(said.dims) == ([-1 if extent is None else extent for extent in known.shape] or [1])
        assert said.HasField("reshape") == (known.shape == ())
        assert list(said.reshape.shape) == []
    assert [i.is_shape_tensor for i in config.input] == [i.shape_values for i in inputs]


def test_several_profiles_are_all_loaded_and_the_smallest_largest_batch_counts():
    several = (profile(x=(8, 3)), profile(x=(4, 3)))
    config = read([tensor("x", None, 3)], [tensor("y", None, 3)], *several)
    assert config.max_batch_size == 4
    [group] = config.instance_group
    assert (group.kind, group.count, list(group.profile)) == (SCHEMA.ModelInstanceGroup.KIND_GPU, 1, ["0", "1"])


@given(st.text(max_size=20).filter(lambda words: "\0" not in words))
def test_any_name_of_a_tensor_survives_the_quotes(name: str):
    config = read([tensor(name, 1)], [tensor("y", 1)])
    assert config.input[0].name == name


def test_what_triton_cannot_be_told_is_refused():
    engine = manifest(MODEL, SPEC, TARGET)
    odd = [tensor("x", 1, dtype="float8e4m3fn"), Tensor(name="x", dtype="float32", shape=None, axes=None)]
    for one in odd:
        with pytest.raises(Refused, match="triton_unsupported"):
            config_of(engine, "m", [one], [])
    for name in ("", "..", "a/b", "a b", "x" * 81):
        with pytest.raises(Refused, match="invalid_request"):
            name_of(engine, name)
    assert name_of(engine, None) == f"engine-{engine.engine_key[7:23]}"

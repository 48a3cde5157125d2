"""Models that would crash, hang or lead a builder astray are refused by reading them, before any native code."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, SparseTensorProto, TensorProto
from onnx.helper import make_graph, make_node, make_sequence_type_proto, make_tensor_type_proto, make_value_info
from onnx.numpy_helper import from_array

from app.intake import walk
from app.intake.inspect import Unfit, inspect
from tests.intake import hostile
from tests.intake.hostile import model, outside, value
from trtforge.contract.failures import CODES


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(model: ModelProto, **files: int):
        Path("model.onnx").write_bytes(model.SerializeToString())
        return inspect("model.onnx", 23, {name.replace("__", "."): size for name, size in files.items()})

    return read


@pytest.fixture
def refusal(read):
    def refusal(model: ModelProto, **files: int) -> tuple[str, str]:
        with pytest.raises(Unfit) as caught:
            read(model, **files)
        return caught.value.code, caught.value.message

    return refusal


# ---- functions


@pytest.mark.parametrize(
    "made",
    [
        hostile.calls_itself(),
        hostile.calls_itself_in_a_branch(),
        hostile.calls_in_a_ring(2),
        hostile.calls_in_a_ring(5000),
        hostile.calls_a_namesake(),
        hostile.doubles(16),
        hostile.doubles(3000),
        hostile.deep(65),
    ],
    ids=["itself", "in a branch", "ring", "long ring", "namesake", "doubling", "doubling beyond words", "deep"],
)
def test_functions_that_do_not_end_are_refused_at_once(refusal, made):
    began = time.monotonic()
    code, message = refusal(made)
    assert code == "model_too_complex"
    assert len(message) < 200
    assert time.monotonic() - began < 5


def test_the_smallest_of_them_are_as_small_as_they_are_said_to_be():
    assert len(hostile.calls_itself().SerializeToString()) < 200
    assert len(hostile.doubles(16).SerializeToString()) < 2000


def test_functions_that_end_are_fine(read):
    assert read(hostile.doubles(8))["node_count"] == 18
    assert read(hostile.deep(20))["operators"]["Neg"] == 1
    shadow = hostile.function("Relu", make_node("Relu", ["v"], ["w"]))
    assert read(model([hostile.call("Relu")], shadow))["operators"] == {"my:Relu": 1, "Relu": 1}


def test_nodes_and_tensors_are_counted(refusal, monkeypatch):
    nodes = [make_node("Neg", ["x"], [f"n{i}"]) for i in range(50)]
    inner = make_graph([*nodes, make_node("Neg", ["x"], ["b"])], "b", [], [value("b")])
    made = model(
        [make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=inner)],
        inputs=[value("x"), value("flag", (), TensorProto.BOOL)],
    )
    monkeypatch.setattr(walk, "MOST_NODES", 100)
    assert refusal(made)[0] == "model_too_complex"
    monkeypatch.setattr(walk, "MOST_TENSORS", 3)
    stored = [from_array(np.zeros(1, np.float32), f"t{i}") for i in range(4)]
    assert refusal(model([make_node("Neg", ["x"], ["y"])], initializer=stored))[0] == "model_too_complex"


# ---- weights in other files


def _sparse(tensor: TensorProto) -> SparseTensorProto:
    indices = from_array(np.array([0], np.int64), "indices")
    return SparseTensorProto(values=tensor, indices=indices, dims=[4])


def _holders(tensor: TensorProto) -> dict[str, ModelProto]:
    """The same tensor in every place where a model can hold one."""
    constant = make_node("Constant", [], ["c"], value=tensor)
    branch = make_graph([constant], "b", [], [value("c", (4,))])
    holding = make_graph([make_node("Identity", ["w"], ["c"])], "b", [], [value("c", (4,))], initializer=[tensor])
    flag = [value("x"), value("flag", (), TensorProto.BOOL)]
    plain = make_node("Neg", ["x"], ["y"])
    with_default = hostile.function("F", make_node("Neg", ["v"], ["w"]))
    with_default.attribute_proto.add(name="a", type=4).t.CopyFrom(tensor)
    training = model([plain])
    training.training_info.add().initialization.initializer.append(tensor)
    return {
        "initializer": model([plain], initializer=[tensor]),
        "sparse initializer": model([plain], sparse_initializer=[_sparse(tensor)]),
        "attribute": model([constant, plain]),
        "sparse attribute": model([make_node("Constant", [], ["c"], sparse_value=_sparse(tensor)), plain]),
        "subgraph": model([make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)], inputs=flag),
        "initializer of a subgraph": model(
            [make_node("If", ["flag"], ["y"], then_branch=holding, else_branch=holding)], inputs=flag
        ),
        "function": model([hostile.call("F")], hostile.function("F", constant, make_node("Neg", ["v"], ["w"]))),
        "default of a function": model([hostile.call("F")], with_default),
        "training": training,
    }


@pytest.mark.parametrize("place", list(_holders(outside())))
def test_weights_elsewhere_are_found_wherever_a_model_can_hold_them(refusal, place):
    code, message = refusal(_holders(outside("weights.bin"))[place])
    assert code == "external_data_missing"
    assert "weights.bin" in message


def _neg(**graph):
    return model([make_node("Neg", ["x"], ["y"])], **graph)


@pytest.mark.parametrize(
    "location",
    ["../w.bin", "/etc/passwd", "sub/w.bin", "..", ".", "", "C:\\w.bin", "a\\w.bin", "C:w.bin", "w\0.bin", "w\n.bin"],
)
def test_locations_that_are_no_plain_name_are_refused(refusal, location):
    Path("w.bin").write_bytes(b"\0" * 16)
    code, message = refusal(_neg(initializer=[outside(location)]), w__bin=16)
    assert code == "external_data_unsafe"
    assert "/etc" not in message
    assert ".." not in message or location == ".."


def test_a_file_that_is_not_declared_is_missing_even_if_it_lies_there(refusal, tmp_path):
    Path("other.bin").write_bytes(b"\0" * 16)
    Path("w.bin").write_bytes(b"\0" * 16)
    assert refusal(_neg(initializer=[outside("other.bin")]), w__bin=16)[0] == "external_data_missing"


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": 4},
        {"offset": 1 << 62},
        {"offset": -4},
        {"offset": "0x0"},
        {"offset": "٠"},
        {"offset": "9" * 40},
        {"length": 8},
        {"length": 32},
        {"length": -16},
        {"length": "1e1"},
    ],
    ids=str,
)
def test_ranges_outside_the_file_are_refused(refusal, entries):
    Path("w.bin").write_bytes(b"\0" * 16)
    code, message = refusal(_neg(initializer=[outside(**entries)]), w__bin=16)
    assert code == "external_data_unsafe"
    assert len(message) < 300


def test_a_location_that_is_said_twice_is_refused(refusal):
    Path("w.bin").write_bytes(b"\0" * 16)
    tensor = outside()
    tensor.external_data.add(key="location", value="/etc/passwd")
    assert refusal(_neg(initializer=[tensor]), w__bin=16)[0] == "external_data_unsafe"


def test_links_and_what_is_no_file_are_refused(refusal, tmp_path):
    made = _neg(initializer=[outside()])
    Path("secret").write_bytes(b"\0" * 16)
    Path("w.bin").symlink_to("secret")
    assert refusal(made, w__bin=16)[0] == "external_data_unsafe"
    Path("w.bin").unlink()
    Path("w.bin").mkdir()
    assert refusal(made, w__bin=16)[0] == "external_data_unsafe"
    Path("w.bin").rmdir()
    os.mkfifo("w.bin")
    assert refusal(made, w__bin=16)[0] == "external_data_unsafe"


def test_declared_weights_are_read_from_their_ranges(read):
    Path("w.bin").write_bytes(b"\0" * 64)
    tensors = [outside(name="a", offset=0, length=16), outside(name="b", offset=48), outside(name="none", dims=(0,))]
    found = read(_neg(initializer=tensors), w__bin=64)
    assert found["parameter_bytes"] == 32
    assert found["problems"] == []


def test_a_broken_rule_is_found_beside_weights_elsewhere(refusal):
    Path("w.bin").write_bytes(b"\0" * 16)
    made = model([make_node("Neg", ["nowhere"], ["y"])], initializer=[outside()])
    assert refusal(made, w__bin=16)[0] == "model_invalid"


# ---- models that nothing builds


@pytest.mark.parametrize("dtype", ["STRING", "COMPLEX64", "UINT16", "INT16", "UINT32", "UINT64", "FLOAT8E5M2", "UINT4"])
def test_types_that_tensorrt_does_not_take_are_problems(read, dtype):
    number = getattr(TensorProto, dtype)
    made = model(
        [make_node("Identity", ["x"], ["y"])],
        inputs=[value("x", dtype=number)],
        outputs=[value("y", dtype=number)],
        opset=21,
    )
    problems = read(made)["problems"]
    assert [(p["code"], p["where"].get("input"), p["where"].get("output")) for p in problems] == [
        ("type_unsupported", "x", None),
        ("type_unsupported", None, "y"),
    ]
    assert problems[0]["remedy"] == CODES["type_unsupported"].remedy


def test_a_sequence_is_no_tensor(read):
    several = make_value_info("s", make_sequence_type_proto(make_tensor_type_proto(TensorProto.FLOAT, None)))
    (found,) = read(model([make_node("Neg", ["x"], ["y"])], inputs=[value("x"), several]))["problems"]
    assert found["where"] == {"input": "s", "dtype": "sequence"}


def quantized(zero: np.generic, scale: float) -> ModelProto:
    stored = [from_array(np.array(zero), "z"), from_array(np.array(scale, np.float32), "s")]
    nodes = [
        make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="down"),
        make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="up"),
    ]
    return model(nodes, initializer=stored, opset=21)


@pytest.mark.parametrize(
    ("zero", "scale", "says"),
    [
        (np.int8(3), 0.1, "zero point"),
        (np.uint8(128), 0.1, "zero point"),
        (np.int8(0), 0.0, "scale"),
        (np.int8(0), -0.1, "scale"),
        (np.int8(0), float("nan"), "scale"),
        (np.int16(0), 0.1, "16 bits"),
    ],
)
def test_quantization_that_tensorrt_does_not_do_is_a_problem(read, zero, scale, says):
    problems = read(quantized(zero, scale))["problems"]
    assert {p["code"] for p in problems} == {"quantization_unsupported"}
    assert [p["where"]["node"] for p in problems] == ["down", "up"]
    assert says in problems[0]["message"]


def test_symmetric_quantization_is_none(read):
    for zero in (np.int8(0), np.uint8(0)):
        assert read(quantized(zero, 0.1))["problems"] == []

"""What is read from a model, and the words for what is none."""

import gzip
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import (
    make_function,
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_sequence_type_proto,
    make_tensor_type_proto,
    make_tensor_value_info,
    make_value_info,
)
from onnx.numpy_helper import from_array

from app.intake.inspect import Unfit, inspect
from trtforge.contract.models import Inspection

HIGHEST = 23


def _value(name, shape=("n", 3), dtype=TensorProto.FLOAT):
    return make_tensor_value_info(name, dtype, shape)


def _model(nodes=None, inputs=None, outputs=None, opset=17, **graph):
    nodes = nodes or [make_node("Relu", ["x"], ["y"])]
    body = make_graph(nodes, "g", inputs or [_value("x")], outputs or [_value("y")], **graph)
    return make_model(body, opset_imports=[make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(model: onnx.ModelProto | bytes) -> Inspection:
        Path("model.onnx").write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return Inspection.model_validate(inspect("model.onnx", HIGHEST))

    return read


@pytest.fixture
def refusal(read):
    def refusal(model: onnx.ModelProto | bytes) -> tuple[str, str]:
        with pytest.raises(Unfit) as caught:
            read(model)
        return caught.value.code, caught.value.message

    return refusal


def test_shapes_axes_and_types(read):
    inputs = [
        _value("x", ("n", 3)),
        _value("open", (None, -1, "", 0)),
        _value("scalar", (), TensorProto.DOUBLE),
        _value("half", (1,), TensorProto.FLOAT16),
        _value("ids", (1,), TensorProto.INT64),
        make_value_info("list", make_sequence_type_proto(make_tensor_type_proto(TensorProto.FLOAT, None))),
    ]
    read_inputs = read(_model(inputs=inputs)).inputs
    assert [(t.name, t.dtype, t.shape, t.axes) for t in read_inputs] == [
        ("x", "float32", (None, 3), ("n", None)),
        ("open", "float32", (None, None, None, 0), (None, None, None, None)),
        ("scalar", "float64", (), ()),
        ("half", "float16", (1,), (None,)),
        ("ids", "int64", (1,), (None,)),
        ("list", "sequence", None, None),
    ]


def test_initializers_are_no_inputs_and_their_bytes_count_with_those_of_constants(read):
    weight = from_array(np.zeros((4, 3), np.float32), "w")
    four_bits = onnx.helper.make_tensor("four", TensorProto.INT4, [3], b"\x00\x00", raw=True)
    nodes = [
        make_node("Constant", [], ["c"], value=from_array(np.zeros(3, np.float64), "c64")),
        make_node("Cast", ["c"], ["c32"], to=TensorProto.FLOAT),
        make_node("Mul", ["x", "c32"], ["y"]),
    ]
    model = _model(nodes, inputs=[_value("x"), _value("w", (4, 3))], initializer=[weight, four_bits], opset=21)
    inspection = read(model)
    assert [t.name for t in inspection.inputs] == ["x"]
    assert inspection.parameter_bytes == 4 * 3 * 4 + 2 + 3 * 8


def test_nodes_in_branches_and_functions_are_counted_once(read):
    def branch(name):
        return make_graph([make_node("Neg", ["x"], [name])], name, [], [_value(name)])

    nodes = [
        make_node("If", ["flag"], ["a"], then_branch=branch("then"), else_branch=branch("other")),
        make_node("Twice", ["a"], ["b"], domain="my"),
        make_node("Twice", ["b"], ["y"], domain="my"),
    ]
    model = _model(nodes, inputs=[_value("x"), _value("flag", (), TensorProto.BOOL)])
    model.opset_import.append(make_opsetid("my", 1))
    body = [make_node("Add", ["v", "v"], ["w"])]
    model.functions.append(make_function("my", "Twice", ["v"], ["w"], body, [make_opsetid("", 17)]))
    inspection = read(model)
    assert inspection.operators == {"Neg": 2, "my:Twice": 2, "If": 1, "Add": 1}
    assert inspection.node_count == 6
    assert inspection.opset == {"": 17, "my": 1}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html></html>", "HTML page"),
        (b"\n <html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(100), "ZIP archive"),
        (b'{"a": 1}', "JSON"),
        (gzip.compress(b"x" * 100, mtime=0), "gzip"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(50), "TensorFlow Lite"),
        (bytes(range(256)), "not an ONNX protobuf"),
        (bytes(1000), "not an ONNX protobuf"),
        (b"\x08\x08", "no graph"),
        (b"\xff" * 1000, "not an ONNX protobuf"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_model_is_called_what_it_looks_like(refusal, raw, words):
    code, message = refusal(raw)
    assert code == "not_an_onnx_model"
    assert words in message


def test_every_cut_of_a_model_is_refused(refusal):
    whole = _model(initializer=[from_array(np.zeros(100, np.float32), "w")]).SerializeToString()
    looks = []
    for end in range(1, len(whole), 7):
        code, message = refusal(whole[:end])
        assert code in ("not_an_onnx_model", "model_invalid")
        looks.append("cut off" in message)
    assert sum(looks) > len(looks) / 2


def test_a_graph_without_outputs_is_no_model(refusal):
    model = _model()
    del model.graph.output[:]
    assert refusal(model) == ("not_an_onnx_model", "The graph has no outputs.")


def test_newer_versions_are_refused_with_both_numbers(refusal):
    code, message = refusal(_model(opset=99))
    assert code == "version_unsupported"
    assert "99" in message
    assert "23" in message
    model = _model()
    model.ir_version = 99
    assert refusal(model)[0] == "version_unsupported"
    model = _model()
    model.functions.append(
        make_function("my", "F", ["v"], ["w"], [make_node("Neg", ["v"], ["w"])], [make_opsetid("", 99)])
    )
    assert refusal(model)[0] == "version_unsupported"


NEWER = {
    "an operator of later": make_node("Swish", ["x"], ["y"]),
    "an attribute of later": make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT, round_mode="up"),
}


@pytest.mark.parametrize("what", NEWER)
def test_a_newer_opset_is_refused_where_the_model_makes_use_of_it(refusal, what):
    code, message = refusal(_model([NEWER[what]], opset=24))
    assert code == "version_unsupported"
    assert NEWER[what].op_type in message


def test_a_newer_opset_that_says_nothing_new_is_read(read):
    nodes = [make_node("Relu", ["x"], ["h"]), make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT)]
    assert read(_model(nodes, opset=24)).opset == {"": 24}


def _external(location: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


@pytest.mark.parametrize("location", ["weights.bin", "/etc/passwd", "../../secret", "C:\\models\\weights.bin"])
def test_weights_elsewhere_are_refused_by_name_and_never_opened(refusal, location):
    code, message = refusal(_model(initializer=[_external(location)]))
    assert code == "external_data_missing"
    assert "w" in message
    assert location.replace("\\", "/").rsplit("/", 1)[-1] in message
    assert "/" not in message


def test_weights_elsewhere_are_found_in_constants_of_branches_too(refusal):
    inner = make_graph([make_node("Constant", [], ["c"], value=_external("w.bin"))], "b", [], [_value("c", (4,))])
    nodes = [make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=inner)]
    assert refusal(_model(nodes, inputs=[_value("flag", (), TensorProto.BOOL)]))[0] == "external_data_missing"


def test_only_the_first_twenty_are_listed(refusal):
    tensors = [_external("w.bin") for _ in range(50)]
    for number, tensor in enumerate(tensors):
        tensor.name = f"tensor{number}"
    message = refusal(_model(initializer=tensors))[1]
    assert "50 tensors" in message
    assert "tensor19 and 30 more" in message


def test_a_broken_rule_is_told_in_one_line(refusal):
    code, message = refusal(_model([make_node("Relu", ["nowhere"], ["y"], name="n")]))
    assert code == "model_invalid"
    assert "nowhere" in message
    assert "\n" not in message


def test_a_tensor_that_claims_more_than_the_file_holds_is_refused(refusal):
    huge = TensorProto(name="huge", data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 40], raw_data=b"\0\0\0\0")
    assert refusal(_model(initializer=[huge])) == (
        "model_invalid",
        "Tensor huge declares more values than the file can hold.",
    )
    negative = TensorProto(name="minus", data_type=TensorProto.FLOAT, dims=[-1], raw_data=b"\0\0\0\0")
    assert refusal(_model(initializer=[negative]))[0] == "model_invalid"


def _field(tag: int, content: bytes) -> bytes:
    length, rest = b"", len(content)
    while rest > 0x7F:
        length += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return bytes([tag << 3 | 2]) + length + bytes([rest]) + content


def test_nesting_deeper_than_protobuf_reads_is_refused(refusal):
    """Built by hand, since the library would refuse to write it: node (1) → attribute (5) → graph (6) → node …"""
    graph = b""
    for _ in range(5000):
        graph = _field(1, _field(5, _field(6, graph)))
    assert refusal(_field(7, graph))[0] == "not_an_onnx_model"

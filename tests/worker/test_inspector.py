"""What the engine inspector says, in the words of TensorRT 10 and 11."""

import pytest

from app.worker import inspector


@pytest.mark.parametrize(
    ("words", "type_"),
    [
        ("Row major linear FP32", "float32"),
        ("Row major linear FP16 format (kLINEAR)", "float16"),
        ("Row major linear BF16 format (kLINEAR)", "bfloat16"),
        ("Row major linear BFloat16 format", "bfloat16"),
        ("Thirty-two wide channel vectorized row major Int8 format.", "int8"),
        ("Eight channel FP16 format (kHWC8) where C is padded to a multiple of 8", "float16"),
        ("Channel major FP8 format where channel % 16 == 0", "float8e4m3fn"),
        ("Sixteen channel INT8 format (kHWC16) where C is padded to a multiple of 16", "int8"),
        ("Row major linear FP4 format (kLINEAR)", "float4e2m1"),
        ("Row major linear INT4 format (kLINEAR)", "int4"),
        ("Row major linear UINT8 format (kLINEAR)", "uint8"),
        ("Row major linear BOOL", "bool"),
        ("Float", "float32"),
        ("Half", "float16"),
        ("Int64", "int64"),
        ("E8M0", "float8e8m0"),
        ("FP6", "FP6"),
        ("Unknown format", "Unknown format"),
        ("N/A due to dynamic shapes", None),
        ("", None),
    ],
)
def test_words_of_tensorrt_become_types_and_others_stay_as_they_are(words, type_):
    assert inspector.precision(words) == type_


def test_layers_have_the_type_of_their_first_output():
    ten = {
        "Name": "a",
        "Inputs": [{"Format/Datatype": "Int8"}],
        "Outputs": [{"Format/Datatype": "Row major linear FP16"}],
    }
    eleven = {"Name": "b", "Inputs": [], "Outputs": [{"Datatype": "Half", "Format": "Row major linear FP16 (kLINEAR)"}]}
    last = {"Name": "c", "Inputs": [{"Datatype": "Float"}], "Outputs": []}
    strange = [{"Name": "d"}, {"Name": "e", "Outputs": ["x"]}, "f", {"Name": "a", "Outputs": [{"Datatype": "Bool"}]}]
    assert inspector.layers({"Layers": [ten, eleven, last, *strange]}) == {
        "a": "float16",
        "b": "float16",
        "c": "float32",
        "d": None,
        "e": None,
        "f": None,
        "a #6": "bool",
    }
    assert inspector.layers({"Layers": "none"}) == inspector.layers({}) == {}


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"Layers": [NaN]}', '{"Name": "\\ud800"}', '{"a":' * 100_000])
def test_what_could_not_be_sent_on_is_refused(text):
    with pytest.raises(ValueError):
        inspector.read(text)

"""What the engine inspector's JSON says of layers: TensorRT 10 writes "Format/Datatype" of a tensor, TensorRT 11 "Datatype"."""

import json
import re
from typing import Any

MOST_LAYERS = 700  # told one by one; with every character escaped, all of this is still a line of less than 1 MiB
LONGEST_NAME = 160  # characters; fused layers have long names
MOST_BYTES = 256 << 10  # of the inspector's JSON: a manifest is read whole, and an archive takes 8 MiB of one

_TYPES = {  # words of the inspector in lower case → ONNX's names, as everywhere on the wire
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp8": "float8e4m3fn",
    "fp4": "float4e2m1",
    "e8m0": "float8e8m0",
    "double": "float64",
    **{
        name: name
        for name in ("int4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
    },
}
_UNKNOWN = "N/A"  # as TensorRT 10 begins to say of shapes that nobody has set


def read(text: str) -> dict[str, Any]:
    """Return what the inspector said. Raises `ValueError` for what is no object of JSON that can be sent on."""
    try:
        found = json.loads(text, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def length(found: dict[str, Any]) -> int:
    """Bytes that it takes on its way into a manifest."""
    return len(json.dumps(found, separators=(",", ":")))


def layers(found: dict[str, Any]) -> dict[str, str | None]:
    """Return the type of each layer's first output, by name, of the first `MOST_LAYERS`; None: it was not told."""
    types: dict[str, str | None] = {}
    for layer in _list(found.get("Layers"))[:MOST_LAYERS]:
        name = str(layer.get("Name") if isinstance(layer, dict) else layer)[:LONGEST_NAME]
        types[name if name not in types else f"{name} #{len(types)}"] = _type_of(layer)
    return types


def count(found: dict[str, Any]) -> int:
    return len(_list(found.get("Layers")))


def precision(words: str) -> str | None:
    """Return the type that a description of a tensor names; words that name none stay as they are."""
    if not words or words.startswith(_UNKNOWN):
        return None
    known = (_TYPES.get(word) for word in re.findall(r"[a-z0-9]+", words.lower()))
    return next((name for name in known if name), words[:60])


def _type_of(layer: Any) -> str | None:
    """With little verbosity a layer is only its name."""
    if not isinstance(layer, dict):
        return None
    tensors = [*_list(layer.get("Outputs")), *_list(layer.get("Inputs"))]
    if not tensors or not isinstance(tensors[0], dict):
        return None
    first = tensors[0]
    return precision(str(first.get("Datatype") or first.get("Format/Datatype") or ""))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")

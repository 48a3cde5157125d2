"""Inputs of a fuzz: real models and hostile ones, changed as a seed says. A case has a number and is always the same."""

import random
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError

from benchmarks.fuzz_structure import CHANGES, DEEP

Chance = random.Random
LARGEST = 1 << 20  # bytes of a model that is changed: the point is what is in it
UNWRITABLE = (DecodeError, EncodeError, ValueError, TypeError)  # what Python's protobuf does not take, like 100 levels


@cache
def originals() -> tuple[bytes, ...]:
    """Real models, in a fixed order: small ones of ONNX's own tests, topologies without weights, an OCR classifier."""
    tests = _package("onnx") / "backend/test/data"
    paths = [
        p for kind in ("simple", "pytorch-operator", "pytorch-converted") for p in tests.glob(f"{kind}/*/model.onnx")
    ]
    paths += [
        *(p for p in tests.glob("light/*.onnx") if "densenet" not in p.name),
        *_package("rapidocr_onnxruntime").glob("models/*cls*.onnx"),
    ]
    return tuple(path.read_bytes() for path in sorted(paths) if path.stat().st_size <= LARGEST)


def model_of(chance: Chance) -> bytes:
    """Return one changed model."""
    content = chance.choice(originals())
    if chance.random() < 0.65:
        content = _restructured(chance, content)
    if chance.random() < 0.3:
        content = _bitten(chance, content)
    return content


def _restructured(chance: Chance, content: bytes) -> bytes:
    model = onnx.load_model_from_string(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        with suppress(*UNWRITABLE):
            chance.choice(CHANGES)(chance, model)
    with suppress(*UNWRITABLE):
        return bytes(model.SerializeToString())
    return content


def _bitten(chance: Chance, content: bytes) -> bytes:
    raw = bytearray(content)
    at = chance.randrange(len(raw) or 1)
    some = chance.choice((1, 2, 8, 64))
    match chance.randint(0, 8):
        case 0:
            for _ in range(some):
                raw[chance.randrange(len(raw))] ^= 1 << chance.randint(0, 7)
        case 1:
            del raw[at:]
        case 2:
            del raw[at : at + some]
        case 3:
            raw[at:at] = raw[at : at + some * 16]
        case 4:
            raw[at:at] = chance.randbytes(some)
        case 5:
            raw[at : at + 10] = b"\xff" * 9 + b"\x01"  # a length or number of 2^64 − 1
        case 6:
            raw += chance.choice(originals())  # protobuf merges what is written one after the other
        case 7:
            raw += _deep(chance.choice(DEEP))
        case _:
            raw[:at] = chance.choice((b"", b"<html>", b"version https://git-lfs", b"PK\x03\x04"))
    return bytes(raw)


def _deep(levels: int) -> bytes:
    """A graph whose node has an attribute whose graph has a node …, written by hand: Python's protobuf stops at 100."""
    inner = b"\x12\x01g"
    for _ in range(levels):
        attribute = b"\x0a\x04body\xa0\x01\x05" + _field(6, inner)
        inner = _field(1, b"\x22\x04Loop" + _field(5, attribute))
    return _field(7, inner)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    raw = bytearray()
    while value > 0x7F:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"Package {name} is not installed; `make check` brings it.")
    return Path(next(iter(spec.submodule_search_locations)))

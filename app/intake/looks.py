"""A guess at what a file is that is no ONNX model, so that the message can say it."""

import json
from pathlib import Path

_STARTS = (
    (b"version https://git-lfs", "it is a Git LFS pointer; fetch the file itself with `git lfs pull`"),
    (b"<!doctype html", "it is an HTML page"),
    (b"<html", "it is an HTML page"),
    (b"<?xml", "it is an XML document"),
    (b"pk\x03\x04", "it is a ZIP archive, as PyTorch writes them"),
    (b"\x1f\x8b", "it is compressed with gzip"),
    (b"\x80\x02", "it is a Python pickle"),
    (b"\x80\x04", "it is a Python pickle"),
    (b"ptrt", "it is a TensorRT plan"),
    (b"ftrt", "it is a TensorRT plan"),
    (b"\x89hdf", "it is an HDF5 file, as Keras writes them"),
)
_LARGEST_JSON = 1 << 20  # bytes that are read only for the sake of a better message
_FIXED = {1: 8, 5: 4}  # bytes of a protobuf field by wire type


def looks_like(path: str) -> str:
    """Return ": it is …", or nothing where no guess is good."""
    with Path(path).open("rb") as file:
        start = file.read(4096)
    head = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for signature, words in _STARTS:
        if head.startswith(signature):
            return f": {words}"
    if start[4:8] == b"TFL3":
        return ": it is a TensorFlow Lite model"
    if head[:1] in (b"{", b"[") and _is_json(path):
        return ": it is a JSON document"
    return ": it seems to be cut off" if _cut_off(path) else ""


def _is_json(path: str) -> bool:
    if Path(path).stat().st_size > _LARGEST_JSON:
        return False
    try:
        json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError):
        return False
    return True


def _cut_off(path: str) -> bool:
    """Whether the outermost protobuf fields run well up to one that ends after the file does."""
    size, at, fields = Path(path).stat().st_size, 0, 0
    with Path(path).open("rb") as file:
        while at < size and fields < 10_000:
            file.seek(at)
            tag, used = _varint(file.read(10))
            if not used or not 1 <= tag >> 3 <= 30:  # ModelProto's field numbers are small
                return False
            at += used
            length = _FIXED.get(tag & 7)
            if length is None:
                if tag & 7 not in (0, 2):
                    return False
                file.seek(at)
                value, used = _varint(file.read(10))
                length = used + (value if tag & 7 == 2 else 0)
                if not used:
                    return at + 10 > size
            at += length
            fields += 1
    return at > size


def _varint(raw: bytes) -> tuple[int, int]:
    """Return (value, bytes used); (0, 0) when `raw` ends before the number does."""
    value = 0
    for used, byte in enumerate(raw, 1):
        value |= (byte & 0x7F) << 7 * (used - 1)
        if byte < 0x80:
            return value, used
    return 0, 0

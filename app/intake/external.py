"""Weights in other files: every reference is plain, declared and inside its file, or the model is refused."""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from onnx import TensorProto

from app.intake.sizes import declared_bytes
from app.intake.unfit import Unfit, listed

Tensors = list[tuple[str, TensorProto]]

_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
_COUNT = re.compile(r"[0-9]{1,19}")
_KEYS = frozenset({"location", "offset", "length", "checksum"})
_RESERVED = frozenset({"", ".", ".."})


def check_external(tensors: Tensors, files: Mapping[str, int]) -> int:
    """Return the bytes that `tensors` keep in `files` (name → size), all in the working folder.

    Raises `Unfit`: external_data_missing when a file is not among them; external_data_unsafe when a location is not a
    plain name, a range lies outside its file, or what is there is not one regular file.
    """
    outside = [pair for pair in tensors if _is_external(pair[1])]
    places = [(name, tensor, _entries(name, tensor)) for name, tensor in outside]
    if files:
        for name, _, entries in places:
            _plain(name, entries["location"])
    missing = [(name, entries["location"]) for name, _, entries in places if entries["location"] not in files]
    if missing:
        raise _missing(missing)
    for file in {entries["location"] for _, _, entries in places}:
        _regular(file, files[file])
    return sum(_within(name, tensor, entries, files[entries["location"]]) for name, tensor, entries in places)


def is_plain(name: str) -> bool:
    """Tell whether `name` can stand for a file beside the graph, on any system, and for nothing else."""
    return bool(_PLAIN.fullmatch(name)) and name not in _RESERVED and not re.match(r"[A-Za-z]:", name)


def _is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL or tensor.external_data)


def _entries(name: str, tensor: TensorProto) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries and entry.key in _KEYS:  # readers differ in which of two they take
            raise Unfit("external_data_unsafe", f"Tensor {name[:80]} says its {entry.key} twice.")
        entries[entry.key] = entry.value
    return {"location": "", **entries}


def _missing(missing: list[tuple[str, str]]) -> Unfit:
    names = [name for name, _ in missing]
    files = sorted({_last_part(location) for _, location in missing} - {""})
    where = f" in {listed(files)}" if files else ""
    return Unfit("external_data_missing", f"{len(names)} tensors are kept outside the file{where}: {listed(names)}.")


def _last_part(location: str) -> str:
    """A location may be a path of the machine that wrote it."""
    return location.replace("\\", "/").rsplit("/", 1)[-1]


def _plain(name: str, location: str) -> None:
    if not is_plain(location):
        raise Unfit(
            "external_data_unsafe",
            f"Tensor {name[:80]} is kept at a location that is not a plain file name ({_last_part(location)[:80]!r}).",
        )


def _regular(file: str, size: int) -> None:
    """Open without following links: what lies there must be the very file that was declared."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Unfit("external_data_unsafe", f"{file[:80]} is not a file that can be opened as it is.") from error
    try:
        found = os.fstat(fd)
    finally:
        os.close(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        raise Unfit("external_data_unsafe", f"{file[:80]} is not the file that was declared.")


def _within(name: str, tensor: TensorProto, entries: dict[str, str], size: int) -> int:
    offset, needed = _number(name, "offset", entries.get("offset", "0")), declared_bytes(tensor)
    length = _number(name, "length", entries["length"]) if "length" in entries else needed
    if needed < 0 or any(extent < 0 for extent in tensor.dims):
        raise Unfit("model_invalid", f"Tensor {name[:80]} has a negative extent.")
    if length != needed or offset + length > size:
        file = Path(entries["location"]).name[:80]
        message = f"Tensor {name[:80]} needs {needed} bytes and names {length} at {offset} of {file}, which has {size}."
        raise Unfit("external_data_unsafe", message)
    return needed


def _number(name: str, key: str, text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise Unfit("external_data_unsafe", f"Tensor {name[:80]} has the {key} {text[:40]!r}, which is no byte count.")
    return int(text)

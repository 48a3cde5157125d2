"""What differs between two values of the same kind, field by field, as a reader would name the fields."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from trtforge.contract.builds import Difference

_GONE = object()


def differences(have: BaseModel, asked: BaseModel) -> tuple[Difference, ...]:
    """Return the fields in which `have` is not what was `asked`, by path ("profiles.0.x.max.1"), sorted."""
    here, there = dict(_flat(have.model_dump(mode="json"))), dict(_flat(asked.model_dump(mode="json")))
    return tuple(
        Difference(field=path, have=here.get(path), asked=there.get(path))
        for path in sorted(here.keys() | there.keys())
        if here.get(path, _GONE) != there.get(path, _GONE)
    )


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            parts = [(str(k), v) for k, v in value.items()]
        case list():
            parts = [(str(i), v) for i, v in enumerate(value)]
        case _:
            yield path, value
            return
    for name, part in parts:
        yield from _flat(part, f"{path}.{name}" if path else name)

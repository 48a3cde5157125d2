"""What differs between two values of the same kind, field by field, as a reader would name the fields."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from trtforge.contract.builds import Difference

_GONE = object()
_WHOLE = frozenset({"compute_capabilities", "warnings"})  # lists that mean something only as a whole

Change = tuple[str, Any, Any]  # path, here, there


def differences(have: BaseModel | dict[str, Any], asked: BaseModel | dict[str, Any]) -> tuple[Difference, ...]:
    """Return the fields in which `have` is not what was `asked`, by path ("profiles.0.x.max.1"), sorted.

    Dicts are values as JSON has them.
    """
    found = sorted(changes(_plain(have), _plain(asked)), key=lambda change: change[0])
    return tuple(Difference(field=path, have=here, asked=there) for path, here, there in found)


def changes(here: Any, there: Any, path: str = "") -> Iterator[Change]:
    """Yield every path at which two JSON values differ; what only one side has is None on the other."""
    if here == there:
        return
    mine, theirs = _parts(here, path), _parts(there, path)
    if mine is None or theirs is None or not (mine or theirs):
        yield path, None if here is _GONE else here, None if there is _GONE else there
        return
    for name in mine | theirs:
        yield from changes(mine.get(name, _GONE), theirs.get(name, _GONE), f"{path}.{name}" if path else name)


def _parts(value: Any, path: str) -> dict[str, Any] | None:
    """Return what a container holds, by name or number; None for a value that is compared as a whole."""
    if value is _GONE:
        return {}
    if path.rpartition(".")[2] in _WHOLE:
        return None
    match value:
        case dict():
            return {str(name): part for name, part in value.items()}
        case list():
            return {str(number): part for number, part in enumerate(value)}
    return None


def _plain(value: BaseModel | dict[str, Any]) -> dict[str, Any]:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value

"""Differences in words: "driver 570.86 → 580.12", "max of `x` axis 0: 8 → 16"."""

import re
from typing import Any

_EXTENT = re.compile(r"profiles\.(\d+)\.(.*)\.(min|opt|max)\.(\d+)", re.DOTALL)
_INPUT = re.compile(r"profiles\.(\d+)\.(.*)\.(min|opt|max|values)", re.DOTALL)
_PROFILE = re.compile(r"profiles\.(\d+)")


def in_words(field: str, have: Any, asked: Any) -> str:
    """Return one difference as a reader would say it; profile 0 is not numbered, because most have no other."""
    change = f"{_value(have)} → {_value(asked)}"
    if found := _EXTENT.fullmatch(field):
        number, name, corner, axis = found.groups()
        return f"{corner} of `{name}` axis {axis}{_in_profile(number)}: {change}"
    if found := _INPUT.fullmatch(field):
        number, name, what = found.groups()
        return f"{what} of `{name}`{_in_profile(number)}: {change}"
    if found := _PROFILE.fullmatch(field):
        return f"profile {found[1]}: {change}"
    return f"{field} {change}"


def _in_profile(number: str) -> str:
    return "" if number == "0" else f" in profile {number}"


def _value(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(_value, value)) or "empty"
        case {}:
            return "empty"
        case str() if value.startswith("sha256:"):
            return value[:19] + "…"
    return str(value)

"""How two engines differ, grouped by what a reader would look into."""

from typing import Any, Literal

from trtforge.contract.base import Digest, Wire

Group = Literal["model", "shapes", "precision", "builder", "target", "options", "calibration", "performance"]


class Change(Wire):
    """One field; None where that engine has no such thing."""

    field: str
    a: Any
    b: Any


class EngineDiff(Wire):
    """Answer of `GET /v1/engines/{a}/diff/{b}`. Groups without a difference are left out."""

    a: Digest
    b: Digest
    same_plan: bool  # byte for byte
    groups: dict[Group, tuple[Change, ...]]

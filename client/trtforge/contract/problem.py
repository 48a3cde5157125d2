"""The one error shape: RFC 9457 problem details with a machine-readable code and a remedy."""

from typing import Any

from trtforge.contract.base import Wire


class Trouble(Wire):
    """One thing wrong, and where."""

    code: str
    where: dict[str, Any] = {}
    message: str
    remedy: str


class Problem(Wire):
    """Body of every error answer (`application/problem+json`). Extra members by code: `builds`, `requests`, `template`, …"""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    remedy: str
    instance: str
    errors: tuple[Trouble, ...] = ()

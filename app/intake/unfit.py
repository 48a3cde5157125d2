"""What is wrong with a model: reasons not to keep it, and findings about one that is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trtforge.contract.failures import CODES

Finding = dict[str, Any]  # the fields of `trtforge.contract.problem.Trouble`; plain, because children start faster so


@dataclass
class Report:
    """What the shape doctor found."""

    problems: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    profiles: list[dict[str, dict[str, Any]]] = field(
        default_factory=list
    )  # with every extent that was found in the place of a broken one


class Unfit(Exception):
    """The file cannot be served as a model: a code of `trtforge.contract.failures` with a status, and what is wrong.

    `files`: names of files that it needs and that are not declared.
    """

    def __init__(self, code: str, message: str, files: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.files = code, message, list(files)


def listed(names: list[str], most: int = 20) -> str:
    """Return names for a message: the first `most`, each cut to 80 characters."""
    shown = ", ".join(name[:80] for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def finding(code: str, message: str, remedy: str | None = None, **where: Any) -> Finding:
    """Return one finding; the remedy defaults to the code's own."""
    return {"code": code, "where": where, "message": message, "remedy": remedy or CODES[code].remedy}

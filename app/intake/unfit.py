"""What is wrong with a model: reasons not to keep it, and findings about one that is kept."""

from typing import Any

from trtforge.contract.failures import CODES

Finding = dict[str, Any]  # the fields of `trtforge.contract.problem.Trouble`; plain, because children start faster so


class Unfit(Exception):
    """The file cannot be served as a model: a code of `trtforge.contract.failures` with a status, and what is wrong."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def listed(names: list[str], most: int = 20) -> str:
    """Return names for a message: the first `most`, each cut to 80 characters."""
    shown = ", ".join(name[:80] for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def finding(code: str, message: str, remedy: str | None = None, **where: Any) -> Finding:
    """Return one finding; the remedy defaults to the code's own."""
    return {"code": code, "where": where, "message": message, "remedy": remedy or CODES[code].remedy}

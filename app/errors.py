"""One exception tree. What a client may see carries a code of `trtforge.contract.failures`, which gives status and remedy."""

from typing import Any

from trtforge.contract.failures import CODES
from trtforge.contract.problem import Trouble


class Refused(Exception):
    """The request cannot be served, for a reason the client can read.

    `code` is in `CODES` and has an HTTP status. `extra` are further members of the problem body. `retry_after` in seconds.
    """

    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        remedy: str | None = None,
        errors: tuple[Trouble, ...] = (),
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
        **extra: Any,
    ) -> None:
        known = CODES[code]
        assert known.status is not None, code
        self.code, self.status = code, known.status
        self.detail = detail or known.meaning
        self.remedy = remedy or known.remedy
        self.errors, self.extra, self.retry_after = errors, extra, retry_after
        self.headers = headers or {}
        super().__init__(f"{code}: {self.detail}")


class LeaseLost(Exception):
    """This attempt no longer owns the build (requeued, claimed again, or ended): it may not write anything."""


class Busy(Exception):
    """The database stayed locked for longer than a request may wait."""


class DatabaseFull(Busy):
    """The disk of the database has no room left; nothing of the transaction was kept."""


class StoreFull(Exception):
    """The store, or this process's share of it, has no room left; nothing half-written was kept."""


class StoreUnusable(Exception):
    """The store cannot be written or read: gone, read-only or broken. The message says which, without a path."""


class PlanRejected(Exception):
    """What a child left as its plan is not one plain file of its own with bytes in it."""


class NotReady(Exception):
    """The service refuses to start; the message names the setting and the fix."""


def trouble(code: str, message: str, remedy: str | None = None, **where: Any) -> Trouble:
    """Return one entry of a problem's `errors`; the remedy defaults to the code's own."""
    return Trouble(code=code, where=where, message=message, remedy=remedy or CODES[code].remedy)

"""What the client raises. Each message says what happened and what to do about it."""

from typing import Any

from trtforge.contract.builds import Request
from trtforge.contract.problem import Problem


class TrtforgeError(Exception):
    """Base of everything the client raises on purpose."""


class ServiceError(TrtforgeError):
    """The service answered with something other than success.

    `problem` is its answer; `members` the whole body, with what some codes add (`builds`, `requests`, `template`, …);
    `retry_after` is in seconds, None where the service named none.
    """

    def __init__(self, problem: Problem, members: dict[str, Any], retry_after: float | None = None) -> None:
        self.problem, self.members, self.retry_after = problem, members, retry_after
        super().__init__(f"{problem.detail} {problem.remedy}".strip())

    @property
    def code(self) -> str:
        return self.problem.code


class ServiceUnreachable(TrtforgeError):
    """No answer came from the service: it is not there, the connection broke, or it took too long."""

    def __init__(self, url: str, cause: str) -> None:
        self.url = url
        super().__init__(
            f"No answer from {url}: {cause}. "
            "Start the service there (`trtforge serve`), or name another with --url or TRTFORGE_URL."
        )


class PlanMismatch(TrtforgeError):
    """The bytes that arrived are not the plan that the manifest names; nothing was kept."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(
            f"The plan that arrived is {got}, the manifest names {expected}. Nothing was kept; fetch again."
        )


class NoEngine(TrtforgeError):
    """The request ended without an engine; `request` says how."""

    def __init__(self, request: Request) -> None:
        self.request = request
        why = f"{request.failure.message} {request.failure.remedy}" if request.failure else f"It was {request.state}."
        super().__init__(f"No engine came of request {request.id}: {why}")

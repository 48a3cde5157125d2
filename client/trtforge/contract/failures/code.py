"""What a failure code says."""

from dataclasses import dataclass
from typing import Literal

Who = Literal["client", "operator", "us"]


@dataclass(frozen=True)
class Code:
    """`status` is the HTTP status of a refusal; None: the code only ends builds. `retryable`: the same build may succeed later."""

    code: str
    status: int | None
    meaning: str
    remedy: str
    who: Who = "client"
    retryable: bool = False

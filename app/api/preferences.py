"""Request headers that ask for a way of answering: `Prefer: wait=N` (RFC 7240), and opaque paging cursors."""

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Header, Response

from app.errors import Refused

MOST_WAIT = 60.0  # seconds
_WAIT = re.compile(r'(?:^|[,;\s])wait\s*=\s*"?(\d{1,6})"?')


async def wait_seconds(
    response: Response,
    prefer: Annotated[str | None, Header(description="`wait=N`: answer after N ≤ 60 s at most.")] = None,
) -> float:
    """Return the seconds a client prefers to wait; 0 when it does not."""
    match = _WAIT.search(prefer or "")
    seconds = min(int(match[1]), int(MOST_WAIT)) if match else 0
    if seconds:
        response.headers["Preference-Applied"] = f"wait={seconds}"
    return float(seconds)


Wait = Annotated[float, Depends(wait_seconds)]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]


def cursor(at: datetime, id_: str) -> str:
    """Return the opaque place after a row in a list that goes newest first."""
    return base64.urlsafe_b64encode(f"{at.isoformat()} {id_}".encode()).decode().rstrip("=")


def read_cursor(text: str | None) -> tuple[datetime, str] | None:
    """Return the place. Raises `Refused`: invalid_request for one that is not ours."""
    if text is None:
        return None
    try:
        at, _, id_ = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition(" ")
        place = datetime.fromisoformat(at)
        if place.tzinfo is None or "\0" in id_:
            raise ValueError("not a place")
        return place.astimezone(UTC), id_
    except (ValueError, OverflowError, binascii.Error) as error:
        raise Refused(
            "invalid_request", "The cursor is not one of this service.", remedy="Start over without it."
        ) from error

"""Spans of time in words, as a person says them."""

from datetime import datetime


def age(now: datetime, then: datetime) -> str:
    """Return how long ago `then` was, in its largest whole unit."""
    seconds = max(0, int((now - then).total_seconds()))
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} seconds"

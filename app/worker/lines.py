"""The border to a child as bytes: a request is one JSON line, every message another."""

import json
from dataclasses import asdict
from typing import Any

from app.worker.messages import (
    BuildRequest,
    InspectRequest,
    LoadRequest,
    Message,
    PreflightRequest,
    ProbeRequest,
    RefitRequest,
    WatchRequest,
)

Request = BuildRequest | RefitRequest | InspectRequest | PreflightRequest | ProbeRequest | LoadRequest | WatchRequest

MAX_LINE = 1 << 20  # bytes of one message; the reader gives a child up that says more at once
STOP = b'{"command":"stop"}\n'

_KINDS: dict[str, type[Request]] = {
    "build": BuildRequest,
    "refit": RefitRequest,
    "inspect": InspectRequest,
    "preflight": PreflightRequest,
    "probe": ProbeRequest,
    "load": LoadRequest,
    "watch": WatchRequest,
}


class TooLong(ValueError):
    """The message does not fit into a line of `MAX_LINE` bytes."""


def request_line(request: Request) -> bytes:
    """Return the one line that tells a child what to do."""
    kind = next(kind for kind, shape in _KINDS.items() if isinstance(request, shape))
    return _line({"kind": kind, **asdict(request)})


def read_request(line: bytes) -> Request:
    """Return the request. Raises `ValueError`, `KeyError` or `TypeError` for what `request_line` did not write."""
    fields: dict[str, Any] = json.loads(line)
    return _KINDS[fields.pop("kind")](**fields)


def message_line(message: Message) -> bytes:
    """Return the message as one line. Raises `TooLong`."""
    line = _line(asdict(message))
    if len(line) > MAX_LINE:
        raise TooLong(message.type)
    return line


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode() + b"\n"

"""Serve the bytes of a plan: whole or in ranges, resumable, verifiable (RFC 9110 and RFC 9530)."""

import os
import re
import stat
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from app.api.sendfile import Span, send_file
from app.errors import Refused

TAG = re.compile(r'(?:W/)?("[^"]*")')
RANGE = re.compile(r"([0-9]{0,99})[ \t]*-[ \t]*([0-9]{0,99})")

Ranges = list[tuple[int, int]]  # first and last byte, inclusive


def plan_response(
    request: Request,
    path: Path,
    digest: str,
    size: int,
    *,
    immutable: bool,
    accel: str | None = None,
    sending: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Response:
    """Return the answer to a GET or HEAD for the plan `digest` of `size` bytes that lies at `path`.

    `accel`: address under which an nginx in front of this service finds the plan; then that sends the bytes.
    `sending` is entered while this process sends the bytes.
    `immutable`: the address holds the digest itself, so the answer may be kept for ever; else it is asked for again.
    Raises `Refused`: `engine_corrupt` when the file is gone or has another size, `range_not_satisfiable`.
    """
    found = _stat(path, size)
    headers = {
        "etag": f'"{digest}"',
        "cache-control": "public, max-age=31536000, immutable" if immutable else "no-cache",
        "repr-digest": f"sha-256=:{b64encode(bytes.fromhex(digest.removeprefix('sha256:'))).decode()}:",
        "accept-ranges": "bytes",
    }
    if _unchanged(request.headers, headers["etag"]):
        return Response(status_code=304, headers={name: headers[name] for name in ("etag", "cache-control")})
    ranges = _asked_ranges(request, headers["etag"], size)
    name = f"{digest.removeprefix('sha256:')}.plan"
    if accel is not None and request.method == "GET":
        headers |= {"x-accel-redirect": accel, "content-disposition": f'attachment; filename="{name}"'}
        del headers["accept-ranges"]  # nginx says it itself
        return Response(headers=headers, media_type="application/octet-stream")
    return _PlanFile(path, ranges, headers, name, found, sending)


class _PlanFile(FileResponse):
    """The kernel sends the whole or one range where it can, else the library; which they are is decided above, because it refuses some that are valid."""

    chunk_size = 1 << 20  # bytes; 3 to 4 times as fast as the default of 64 KiB

    def __init__(
        self,
        path: Path,
        ranges: Ranges,
        headers: dict[str, str],
        filename: str,
        found: os.stat_result,
        sending: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__(path, 200, headers, "application/octet-stream", filename=filename, stat_result=found)
        del self.headers["last-modified"]  # one second is too coarse to resume by; the ETag is exact
        self._ranges, self._sending = ranges, sending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._sending():
            await self._send_all(scope, receive, send)

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET" and len(self._ranges) < 2 and await self._by_kernel(scope, send):
            if self.background:
                await self.background()
            return
        asked = [(name, value) for name, value in scope["headers"] if name not in (b"range", b"if-range")]
        if self._ranges:
            words = ",".join(f"{first}-{last}" for first, last in self._ranges)
            asked.append((b"range", f"bytes={words}".encode()))
        await super().__call__({**scope, "headers": asked}, receive, send)

    async def _by_kernel(self, scope: Scope, send: Send) -> bool:
        """Send the whole or one range without a detour; False: nothing was sent."""
        assert self.stat_result is not None
        size, headers, status = self.stat_result.st_size, MutableHeaders(raw=list(self.raw_headers)), self.status_code
        span = Span(0, size)
        if self._ranges:
            [(first, last)] = self._ranges
            span, status = Span(first, last - first + 1), 206
            headers["content-range"] = f"bytes {first}-{last}/{size}"
            headers["content-length"] = str(span.size)
        start = {"type": "http.response.start", "status": status, "headers": headers.raw}
        try:
            return await send_file(scope, send, Path(self.path), span, start)
        except FileNotFoundError as error:  # removed since it was looked at, and nothing is sent yet
            raise Refused("engine_corrupt", "The stored plan is missing.") from error


def _stat(path: Path, size: int) -> os.stat_result:
    try:
        found = path.lstat()
    except OSError as error:
        raise Refused("engine_corrupt", "The stored plan is missing.") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        raise Refused("engine_corrupt", "The stored plan is damaged.")
    return found


def _unchanged(headers: Headers, etag: str) -> bool:
    """If-None-Match, compared weakly as it must be."""
    asked = ",".join(headers.getlist("if-none-match")).strip()
    return asked == "*" or etag in TAG.findall(asked)


def _asked_ranges(request: Request, etag: str, size: int) -> Ranges:
    """Return the satisfiable ranges that count; empty: the whole is the answer.

    A Range that is malformed, of another unit, on another method than GET, or under an If-Range that does not match
    strongly is ignored. Raises `Refused` when none of a well-formed set touches the plan.
    """
    asked = request.headers.get("range")
    if asked is None or request.method != "GET" or request.headers.get("if-range", etag).strip() != etag:
        return []
    unit, _, listed = asked.partition("=")
    parts = [part.strip() for part in listed.split(",") if part.strip()]
    matches = [match for part in parts if (match := RANGE.fullmatch(part))]
    if unit.strip().lower() != "bytes" or not parts or len(matches) != len(parts):
        return []
    spans = [_span(match[1], match[2], size) for match in matches]
    if None in spans:
        return []
    satisfiable = [(first, last) for first, last in filter(None, spans) if first <= last]
    if not satisfiable:
        raise Refused("range_not_satisfiable", headers={"Content-Range": f"bytes */{size}"})
    return satisfiable


def _span(first: str, last: str, size: int) -> tuple[int, int] | None:
    """Return first and last byte, within the plan; first > last: nothing of it is there. None: not a valid range."""
    if not first:
        return (max(size - int(last), 0), size - 1) if last else None
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last), size - 1) if last else size - 1

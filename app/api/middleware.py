"""Around every request: an id, one log line, an answer whatever happens; and a bound on JSON bodies."""

from time import monotonic

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import problem
from app.builds.metrics import Metrics
from app.domain.ids import new_id
from app.errors import Refused

log = structlog.get_logger()
QUIET = ("/livez", "/readyz")  # asked every few seconds by every probe


class RequestLog:
    """Give every request an id (the caller's `X-Request-Id` when it has one), log and count how it was answered."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request = given if given.isascii() and given.isprintable() and 0 < len(given) <= 100 else new_id("htr")
        began, answered = monotonic(), 0

        async def tagged(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request
            await send(message)

        with structlog.contextvars.bound_contextvars(request=request):
            try:
                await self._app(scope, receive, tagged)
            except Exception:
                log.exception("request_failed")  # here and not in the framework, which would raise it again
                if answered:  # too late to say anything else: the connection is cut, and a client notices
                    raise
                await problem(Refused("internal_error"), scope["path"])(scope, receive, tagged)
            finally:
                self._metrics.answered(scope["method"], _template(scope), answered)
                write = log.debug if scope["path"] in QUIET else log.info
                write(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    answered=answered,
                    seconds=round(monotonic() - began, 4),
                )


def _template(scope: Scope) -> str:
    """Return the route's own path; one word for everything that has none, however many addresses are tried."""
    return str(scope.get("route_path") or getattr(scope.get("route"), "path", "none"))


class BodyLimit:
    """Refuse JSON bodies over `limit` bytes while they come; uploads have limits of their own."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "PUT" or scope["path"] == "/v1/import":
            await self._app(scope, receive, send)
            return
        left = self._limit

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"A body may have {self._limit} bytes (TRTFORGE_MAX_BODY_BYTES).")
            return message

        await self._app(scope, counted, send)


class PlainAddress:
    """Refuse addresses with a NUL, which no id has and a database cannot compare."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ("\0" in scope["path"] or b"%00" in scope["query_string"]):
            refused = Refused("invalid_request", "The address holds a NUL character.", remedy="Leave it out.")
            await problem(refused, scope["path"])(scope, receive, send)
        else:
            await self._app(scope, receive, send)

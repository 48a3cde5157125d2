"""Every error in one shape: RFC 9457 problem details, from the one list of codes."""

from collections.abc import Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.errors import Busy, DatabaseFull, Refused, StoreFull, StoreUnusable, trouble
from trtforge.contract.problem import Trouble

MEDIA_TYPE = "application/problem+json"
TITLES = {413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}  # RFC 9110's words
BY_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "unsupported_media_type"}
RETRY_AFTER = 5  # seconds, where nothing better is known: every 429 and 503 says when to come back
MOST_ERRORS = 100  # listed in one answer

log = structlog.get_logger()


def problem(refused: Refused, instance: str) -> Response:
    """Return the answer for a refusal."""
    body = {
        "type": "about:blank",
        "title": TITLES.get(refused.status) or HTTPStatus(refused.status).phrase,
        "status": refused.status,
        "code": refused.code,
        "detail": refused.detail,
        "remedy": refused.remedy,
        "instance": instance,
        "errors": [e.model_dump(mode="json") for e in refused.errors],
        **refused.extra,
    }
    headers = dict(refused.headers)
    if refused.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="trtforge"'
    if refused.retry_after is not None or refused.status in (429, 503):
        headers["Retry-After"] = str(ceil(refused.retry_after or RETRY_AFTER))
    return JSONResponse(body, refused.status, headers, MEDIA_TYPE)


def refused_by(error: Refused | Busy | StoreFull | StoreUnusable) -> Refused:
    """Return the refusal that an exception of ours comes to."""
    match error:
        case DatabaseFull():
            return Refused("store_full", "The disk of the database is full.")
        case Busy():
            return Refused("unavailable", "The database is busy.", retry_after=1)
        case StoreFull():
            return Refused("store_full", f"The store is full: {error}.")
        case StoreUnusable():
            return Refused("unavailable", f"The store cannot be used: {error}.", retry_after=5)
    return error


def install(app: FastAPI) -> None:
    """Answer every exception, the framework's own too, as a problem."""
    translations = {
        **dict.fromkeys((Refused, Busy, StoreFull, StoreUnusable), refused_by),
        RequestValidationError: lambda e: invalid(e.errors()),
        HTTPException: _foreign,
    }
    for kind, translate in translations.items():
        app.add_exception_handler(kind, _handler(translate))


def _handler(translate: Any) -> Any:
    async def handle(request: Request, error: Exception) -> Response:
        refused: Refused = translate(error)
        if refused.status >= 500 and not isinstance(error, Refused):
            log.warning("request_refused", code=refused.code, reason=str(error))
        return problem(refused, request.url.path)

    return handle


def _foreign(error: HTTPException) -> Refused:
    code = BY_STATUS.get(error.status_code)
    if code is None:
        return Refused("malformed_json" if error.status_code < 500 else "internal_error", str(error.detail))
    detail = error.detail if error.status_code == 413 else None  # the others say only their own name
    return Refused(code, detail, headers=dict(error.headers or {}))


def invalid(errors: Sequence[Any]) -> Refused:
    """Return one refusal for everything that pydantic found wrong with a request."""
    if any(e["type"] == "json_invalid" for e in errors):
        return Refused("malformed_json", f"The body is not JSON: {errors[0].get('ctx', {}).get('error', '')}")
    found = tuple(_trouble(e) for e in errors[:MOST_ERRORS])
    code = "option_unsupported" if found and all(t.code == "option_unsupported" for t in found) else "invalid_request"
    detail = found[0].message if len(found) == 1 else f"{len(errors)} fields are wrong, first: {found[0].message}"
    return Refused(code, detail, errors=found)


def _trouble(error: Any) -> Trouble:
    where = [str(part) for part in error["loc"]]
    place, field = where[0], ".".join(where[1:])
    if error["type"] == "extra_forbidden":
        code = "option_unsupported" if where[1:2] in (["spec"], ["options"]) else "invalid_request"
        return trouble(code, f"{field or place} is unknown.", "Leave it out, or check its spelling.", field=field)
    return trouble("invalid_request", f"{field or place}: {error['msg']}.", "Mend this field.", field=field)

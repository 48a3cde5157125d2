"""/openapi.json: every answer each address can give. What all of a kind share is said here once; the rest at the route."""

from typing import Any

from fastapi import FastAPI

from trtforge.contract.failures import CODES
from trtforge.contract.problem import Problem

MEDIA_TYPE = "application/problem+json"
SCHEMA = {"$ref": "#/components/schemas/Problem"}
_RETRY = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "How to say who you are.", "schema": {"type": "string"}}},
    429: _RETRY,
    503: _RETRY,
}
RAW: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}  # of a route that reads the body itself
UPLOADS = ("upload_incomplete", "digest_mismatch", "too_large", "store_full")

Answers = dict[int | str, dict[str, Any]]


def refusals(*codes: str) -> Answers:
    """Return what a route may refuse with, beyond what every route of its kind may: for `responses`."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        status = CODES[code].status
        assert status is not None, code
        by_status.setdefault(status, []).append(code)
    return {status: _answer(status, listed) for status, listed in by_status.items()}


def install(app: FastAPI) -> None:
    """Let the app's document name every refusal."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = FastAPI.openapi(app)
            schemas = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            document["components"]["schemas"] |= schemas.pop("$defs") | {"Problem": schemas}
            for path, item in document["paths"].items():
                for method, operation in item.items():
                    _complete(path, method, operation)
            for unused in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(unused, None)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says it is done


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    if MEDIA_TYPE not in answers.get("422", {}).get("content", {}):
        answers.pop("422", None)  # the framework's own shape, which is never sent
    for code in _common(path, operation):
        status = CODES[code].status
        assert status is not None, code
        known = answers.setdefault(str(status), _answer(status, [code]))
        if status >= 400:
            known.setdefault("content", _content())
            known.setdefault("headers", _HEADERS.get(status, {}))
    if method == "head":
        for answer in answers.values():
            answer.pop("content", None)
    operation["responses"] = dict(sorted(answers.items()))


def _common(path: str, operation: dict[str, Any]) -> list[str]:
    """What any route of this kind may refuse with."""
    codes = ["invalid_request", "internal_error"]
    if path != "/livez" and not path.startswith("/v1/schemas"):
        codes.append("unavailable")
    if operation.get("security"):
        codes += ["unauthorized", "forbidden"]
    if "application/json" in operation.get("requestBody", {}).get("content", {}):
        codes += ["malformed_json", "too_large", "unsupported_media_type"]
    if any(p["in"] == "path" for p in operation.get("parameters", ())):
        codes.append("not_found")
    if any(p["name"].lower() == "prefer" for p in operation.get("parameters", ())):
        codes.append("too_many")
    return codes


def _answer(status: int, codes: list[str]) -> dict[str, Any]:
    told = " ".join(f"`{code}`: {CODES[code].meaning}" for code in codes)
    return {"description": told, "content": _content(), "headers": _HEADERS.get(status, {})}


def _content() -> dict[str, Any]:
    return {MEDIA_TYPE: {"schema": SCHEMA}}

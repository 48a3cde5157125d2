"""Read JSON strictly: what readers disagree on, or a database cannot hold, is refused before anyone acts on it."""

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.errors import Refused

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # the escape itself, not a backslash that is followed by u0000


class StrictRoute(APIRoute):
    """A route whose JSON body is UTF-8 and has each key once, only finite numbers, and no NUL."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        takes_json = self.body_field is not None

        async def strict(request: Request) -> Response:
            if takes_json and _sends_other(request):
                raise Refused("unsupported_media_type", "The body must be JSON: `Content-Type: application/json`.")
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def _sends_other(request: Request) -> bool:
    """Tell whether a body is there that says it is no JSON."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    empty = request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers
    return bool(media) and not empty and media != "application/json" and not media.endswith("+json")


class _StrictRequest(Request):
    async def json(self) -> Any:
        return read_json(await self.body())


def read_json(body: bytes) -> Any:
    """Return the value. Raises `json.JSONDecodeError` that says what is wrong."""
    try:
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_each_once, parse_constant=_not_finite)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except json.JSONDecodeError:
        raise
    except UnicodeError as error:
        _refuse("not UTF-8", error)
    except RecursionError as error:
        _refuse("nested too deeply", error)
    except ValueError as error:  # more digits than Python reads
        _refuse(str(error), error)
    if _NUL.search(text):
        _refuse("a text holds a NUL character")
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        _refuse(f"key {twice[:100]!r} comes twice")
    return found


def _not_finite(word: str) -> NoReturn:
    _refuse(f"{word} is not a number of JSON")


def _refuse(why: str, cause: Exception | None = None) -> NoReturn:
    raise json.JSONDecodeError(why, "", 0) from cause

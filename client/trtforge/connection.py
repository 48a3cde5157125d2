"""One HTTP connection to the service: every answer that is not a success becomes an exception of ours."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic, sleep
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from trtforge import __version__
from trtforge.contract.problem import Problem
from trtforge.errors import ServiceError, ServiceUnreachable

DEFAULT_URL = "http://127.0.0.1:8080"
MAX_WAIT_S = 60.0  # the longest wait the service grants
_CONNECT_S = 5.0
_PAUSES = (0.2, 4.0)  # seconds before trying again: the first pause, and the longest
_PASSING = frozenset({429, 502, 503, 504})  # busy, draining, or a proxy in front of a service that restarts

Answer = TypeVar("Answer")


class Patience:
    """How long to keep trying, in seconds since it last went well; pauses double up to a few seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._until = monotonic() + self._seconds
        self._pause = _PAUSES[0]

    def pause(self, least_s: float | None = None) -> bool:
        """Sleep before the next try, at least as long as the service asked for; False at once when it is used up."""
        pause = max(self._pause, least_s or 0.0)
        if monotonic() + pause > self._until:
            return False
        sleep(pause)
        self._pause = min(self._pause * 2, _PAUSES[1])
        return True


class Connection:
    """Sends requests and reads answers. Raises `ServiceError` or `ServiceUnreachable`, nothing of httpx."""

    def __init__(self, url: str | None, token: str | None, timeout_s: float, patience_s: float) -> None:
        self.url = (url or os.environ.get("TRTFORGE_URL") or DEFAULT_URL).rstrip("/")
        self.timeout_s, self.patience_s = timeout_s, patience_s
        self._reached = False  # a service that was never there is not worth waiting for
        token = token or os.environ.get("TRTFORGE_TOKEN")
        headers = {"User-Agent": f"trtforge/{__version__}"} | ({"Authorization": f"Bearer {token}"} if token else {})
        with self._translated():
            if not self.url.startswith(("http://", "https://")):
                raise ServiceUnreachable(self.url, "that is not an http:// or https:// address")
            self._http = httpx.Client(base_url=self.url, headers=headers, follow_redirects=True)

    def close(self) -> None:
        self._http.close()

    def send(
        self, method: str, path: str, *, wait_s: float | None = None, read_s: float | None = None, **request: Any
    ) -> httpx.Response:
        """Return a successful answer. `wait_s` asks the service to hold its answer back until something ends."""
        headers = dict(request.pop("headers", {}))
        if wait_s is not None:
            headers["Prefer"] = f"wait={min(wait_s, MAX_WAIT_S):g}"
        timeout = self._timeout((read_s or self.timeout_s) + (wait_s or 0))
        with self._translated():
            response = self._http.request(method, path, headers=headers, timeout=timeout, **request)
            self._reached = True
        return _successful(response)

    def insist(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Like `send`, but try again for `patience_s` when the service is away or asks to come back later.

        Only for requests that may arrive twice.
        """
        return self.persevere(lambda: self.send(method, path, **request))

    def persevere(self, attempt: Callable[[], Answer]) -> Answer:
        """Return what `attempt` returns; repeat it while its trouble may pass and patience lasts."""
        patience = Patience(self.patience_s)
        while True:
            try:
                return attempt()
            except (ServiceError, ServiceUnreachable) as trouble:
                if not self.may_pass(trouble) or not patience.pause(getattr(trouble, "retry_after", None)):
                    raise

    def may_pass(self, trouble: ServiceError | ServiceUnreachable) -> bool:
        """Say whether the same request may succeed a little later."""
        return self._reached if isinstance(trouble, ServiceUnreachable) else trouble.problem.status in _PASSING

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        headers: Mapping[str, str],
        read_s: float | None = None,
        params: dict[str, list[str]] | None = None,
    ) -> Iterator[httpx.Response]:
        """Open a successful answer whose body is still to come; trouble while it is read is translated too."""
        timeout = self._timeout(read_s or self.timeout_s)
        with (
            self._translated(),
            self._http.stream("GET", path, headers=headers, timeout=timeout, params=params) as response,
        ):
            self._reached = True
            if not response.is_success:
                response.read()
            yield _successful(response)

    def _timeout(self, read_s: float) -> httpx.Timeout:
        return httpx.Timeout(read_s, connect=min(_CONNECT_S, self.timeout_s))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise ServiceUnreachable(self.url, _in_words(error)) from error
        except (httpx.TransportError, httpx.StreamError, httpx.DecodingError) as error:
            self._reached = True
            raise ServiceUnreachable(self.url, _in_words(error)) from error
        except (httpx.InvalidURL, httpx.TooManyRedirects, UnicodeError) as error:
            raise ServiceUnreachable(self.url, f"the address is not usable ({error})") from error


def _in_words(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    return str(error).rstrip(".") or type(error).__name__


def _successful(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    members = _members(response)
    try:
        problem = Problem.model_validate(members)
    except ValidationError:
        problem, members = _foreign(response), {}
    raise ServiceError(problem, members, _seconds(response.headers.get("Retry-After")))


def _members(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _foreign(response: httpx.Response) -> Problem:
    """Describe an answer that has not the service's shape: a proxy's page, or another program on that port."""
    kind = response.headers.get("Content-Type", "no content type")
    return Problem(
        title=response.reason_phrase or "Unexpected answer",
        status=response.status_code,
        code="unavailable" if response.status_code in _PASSING else "unexpected_answer",
        detail=f"{response.request.url} answered {response.status_code} ({kind}), not in this service's shape.",
        remedy="Check that the address is trtforge's and what stands between.",
        instance=response.request.url.path,
    )


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None:
        return None
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        at = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (at - datetime.now(UTC)).total_seconds()) if at.tzinfo else None

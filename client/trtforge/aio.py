"""The client for programs with an event loop: every call of `Client`, beside the loop.

Each call and each stream takes one thread of the client's own while it lasts; `most` bounds them. A cancelled call lets go
of its answer: it is for the caller to withdraw a request or cancel a build.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from trtforge.client import Client
from trtforge.signature import Given

T = TypeVar("T")

STREAMS = frozenset({"events", "follow", "builds", "engines", "names"})
PLAIN = frozenset(
    [
        "upload",
        "model",
        "preflight",
        "targets",
        "submit",
        "refit",
        "build",
        "wait",
        "settled",
        "log",
        "cancel",
        "request",
        "withdraw",
        "ticket",
        "manifest",
        "diff",
        "resolve",
        "pin",
        "remove",
        "name",
        "name_history",
        "set_name",
        "remove_name",
        "named",
        "ready",
        "fetch",
        "readiness",
    ]
)
ADMIN_STREAMS = frozenset({"tokens"})
ADMIN_PLAIN = frozenset({"create_token", "revoke_token", "gc", "verify"})
_END = object()


class AsyncClient:
    """`await client.submit(…)`, `async for event in client.events(…)`: names, arguments and errors are those of `Client`."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        most: int = 16,
        public_key: Given | Sequence[Given] | None = None,
    ) -> None:
        self._client = Client(url, token, timeout_s, patience_s, public_key)
        self._threads = ThreadPoolExecutor(most, "trtforge")
        self.url = self._client.url
        self.admin = _AsyncAdmin(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close; calls under way end as cut off."""
        self._client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __getattr__(self, name: str) -> Any:
        if name in PLAIN:
            return self._plain(getattr(self._client, name))
        if name in STREAMS:
            return self._stream(getattr(self._client, name))
        raise AttributeError(name)

    def _plain(self, method: Callable[..., T]) -> Callable[..., Any]:
        async def call(*args: Any, **named: Any) -> T:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, lambda: method(*args, **named))

        return call

    def _stream(self, method: Callable[..., Iterator[T]]) -> Callable[..., AsyncIterator[T]]:
        async def stream(*args: Any, **named: Any) -> AsyncIterator[T]:
            loop = asyncio.get_running_loop()
            arrived: asyncio.Queue[Any] = asyncio.Queue()
            left = threading.Event()

            def hand_over(item: object) -> None:
                with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waited
                    loop.call_soon_threadsafe(arrived.put_nowait, item)

            def pump() -> None:
                try:
                    for item in method(*args, **named):
                        hand_over(item)
                        if left.is_set():
                            return
                    hand_over(_END)
                except BaseException as error:
                    hand_over(error)

            self._threads.submit(pump)
            try:
                while (item := await arrived.get()) is not _END:
                    if isinstance(item, BaseException):
                        raise item
                    yield item
            finally:
                left.set()

        return stream


class _AsyncAdmin:
    """`client.admin` beside the loop: names, arguments and errors are those of `Admin`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if name in ADMIN_PLAIN:
            return self._client._plain(getattr(self._client._client.admin, name))
        if name in ADMIN_STREAMS:
            return self._client._stream(getattr(self._client._client.admin, name))
        raise AttributeError(name)

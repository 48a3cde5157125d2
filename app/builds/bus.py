"""Wake-ups inside one process. They carry nothing: who is woken looks at the database, which is the truth."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

QUEUE = "queue"  # topic: a build was queued, or a slot or lock came free; every other topic is a build's id


class Bus:
    """`notify` from any thread wakes all listeners of a topic. A wake-up may be lost (other processes): listeners poll too."""

    def __init__(self) -> None:
        self._listeners: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def notify(self, topic: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, topic)

    def _wake(self, topic: str) -> None:
        for listener in self._listeners.get(topic, ()):
            listener.set()

    @contextmanager
    def listen(self, topic: str) -> Iterator[asyncio.Event]:
        """Give an event that is set at every wake-up; the listener clears it before it looks."""
        listener = asyncio.Event()
        self._listeners[topic].add(listener)
        try:
            yield listener
        finally:
            self._listeners[topic].discard(listener)
            if not self._listeners[topic]:
                del self._listeners[topic]


async def woken(listener: asyncio.Event, seconds: float) -> bool:
    """Wait for a wake-up, `seconds` at most; clear it and say whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await listener.wait()
    except TimeoutError:
        return False
    listener.clear()
    return True

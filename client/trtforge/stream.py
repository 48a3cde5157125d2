"""Follow a build's events across cuts, restarts and draining replicas: each stored event once, in order."""

from collections.abc import Generator, Iterator
from contextlib import closing

from pydantic import ValidationError

from trtforge.connection import Connection, Patience
from trtforge.contract.events import Cancelled, Draining, Event, Failed, Snapshot, Stored, Succeeded, read_event
from trtforge.errors import ServiceError, ServiceUnreachable
from trtforge.sse import frames

_SILENCE_S = 30.0  # six heartbeats; a connection that says nothing for so long is dead


class Follower:
    """The position in one build's events. `seq` is that of the last stored event handed out."""

    def __init__(self, connection: Connection, build_id: str, after: int | None) -> None:
        self._connection, self._path, self.seq = connection, f"/v1/builds/{build_id}/events", after
        self._ended = False

    def events(self) -> Iterator[Event]:
        """Yield events until the last one of the build.

        Raises `ServiceUnreachable` when the service stays away longer than the connection's patience.
        """
        patience = Patience(self._connection.patience_s)
        while not self._ended:
            trouble: ServiceError | ServiceUnreachable = ServiceUnreachable(
                self._connection.url, "the stream ended early"
            )
            pause_s: float | None = None
            try:
                with closing(self._connect()) as events:
                    for event in events:
                        if not isinstance(event, Snapshot):  # a stream that never gets past it makes no headway
                            patience.renew()
                        yield event
                        if isinstance(event, Draining):
                            pause_s = event.reconnect_after_s
                            break
            except (ServiceError, ServiceUnreachable) as error:
                if not self._connection.may_pass(error):
                    raise
                trouble, pause_s = error, getattr(error, "retry_after", None)
            if not self._ended and not patience.pause(pause_s):
                raise trouble

    def _connect(self) -> Generator[Event]:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.seq is not None:
            headers["Last-Event-ID"] = str(self.seq)
        with self._connection.stream(self._path, headers=headers, read_s=_SILENCE_S) as response:
            self._ended = response.status_code == 204
            for frame in frames(response.iter_raw()):
                if event := self._new(frame.data):
                    yield event
                if self._ended:
                    return

    def _new(self, raw: str) -> Event | None:
        """Return the event unless it is of an unknown type or was handed out before."""
        try:
            event = read_event(raw)
        except ValidationError as error:
            cause = f"an event is not in this version's shape ({raw[:80]!r})"
            raise ServiceUnreachable(self._connection.url, cause) from error
        if isinstance(event, Stored):
            if self.seq is not None and event.seq <= self.seq:
                return None
            self.seq = event.seq
            self._ended = isinstance(event, Succeeded | Failed | Cancelled)
        return event

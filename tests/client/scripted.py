"""A real HTTP server that answers as told, one answer a connection: for what a sound service cannot be made to do."""

import json
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass
class Scripted:
    """Answers the n-th connection with the n-th answer, the last for all further ones; keeps what was asked."""

    answers: list[bytes]
    asked: list[Asked] = field(default_factory=list)
    port: int = 0  # 0 takes a free one

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as reader:
                self.asked.append(_request(reader.readline, reader.read))
                connection.sendall(self.answers[min(len(self.asked), len(self.answers)) - 1])


def _request(read_line: Callable[[], bytes], read: Callable[[int], bytes]) -> Asked:
    method, path, _ = read_line().decode().split(" ", 2)
    headers = {}
    while line := read_line().strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return Asked(method, path, headers, read(int(headers.get("content-length", 0))))


def answer(
    status: str = "200 OK", body: object = b"", *, cut: int | None = None, tag: str | None = None, **headers: str
) -> bytes:
    """Return an answer as bytes; `cut` keeps only so many bytes of the body, though more are announced."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(raw)}", "Connection: close"]
    lines += [f'ETag: "{tag}"'] if tag else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + raw[:cut]


def stream(events: Iterable[dict[str, object]], tail: bytes = b"") -> bytes:
    """Return an event stream that is cut after `events` and `tail`."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return head + b"".join(_frame(event) for event in events) + tail


def _frame(event: dict[str, object]) -> bytes:
    stored = f"id: {event['seq']}\n" if "seq" in event and event["type"] != "snapshot" else ""
    return f"{stored}data: {json.dumps(event)}\n\n".encode()


def problem(
    status: int, code: str, detail: str = "It is so.", remedy: str = "Do this.", **more: object
) -> dict[str, object]:
    return {"title": "No", "status": status, "code": code, "detail": detail, "remedy": remedy, "instance": "/x"} | more

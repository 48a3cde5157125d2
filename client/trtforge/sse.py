"""Read `text/event-stream`: bytes in any pieces → frames, by the rules of the WHATWG standard (HTML, 9.2.6)."""

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Frame:
    """One dispatched event. `id` is the last id seen on the stream, as EventSource reports it."""

    event: str
    id: str
    data: str


@dataclass
class Parser:
    """Turn pieces of a stream into frames; what has no blank line after it yet stays inside and is never a frame."""

    last_id: str = ""
    retry_ms: int | None = None
    _text: str = ""
    _event: str = ""
    _data: list[str] = field(default_factory=list)
    _started: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yield the frames that `piece` completes."""
        self._text += self._decoder.decode(piece)
        if not self._started and self._text:
            self._started, self._text = True, self._text.removeprefix("\ufeff")
        for line in self._lines():
            if line:
                self._field(line)
            elif frame := self._dispatch():
                yield frame

    def _lines(self) -> Iterator[str]:
        start = 0
        for end in _LINE_END.finditer(self._text):
            if end.group() == "\r" and end.end() == len(self._text):
                break  # the next piece may begin with the \n that belongs to it
            yield self._text[start : end.start()]
            start = end.end()
        self._text = self._text[start:]

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)

    def _dispatch(self) -> Frame | None:
        event, data = self._event, self._data
        self._event, self._data = "", []
        return Frame(event or "message", self.last_id, "\n".join(data)) if data else None


def frames(pieces: Iterable[bytes]) -> Iterator[Frame]:
    """Yield the frames of a whole stream; a last one without its blank line is discarded."""
    parser = Parser()
    for piece in pieces:
        yield from parser.feed(piece)

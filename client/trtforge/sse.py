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
    _after_cr: bool = False  # a \r at the end of a piece has ended its line; a \n that follows belongs to it
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yield the frames that `piece` completes."""
        text = self._decoder.decode(piece)
        if text and not self._started:
            self._started, text = True, text.removeprefix("\ufeff")
        if text and self._after_cr:
            text = text.removeprefix("\n")
            self._after_cr = False
        self._text += text
        for line in self._lines():
            if line:
                self._field(line)
            elif frame := self._dispatch():
                yield frame

    def _lines(self) -> Iterator[str]:
        start = 0
        for end in _LINE_END.finditer(self._text):
            yield self._text[start : end.start()]
            start = end.end()
        self._after_cr = self._after_cr or self._text.endswith("\r")
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

"""Server-sent events, as far as model answers need them: bytes in, events out. Sans-IO.

Bytes may be cut anywhere, also inside a character or between the two bytes of a line's end. An event that is not ended
by an empty line is given at the end of the stream all the same: some servers leave the last one open.
"""

import codecs
from collections.abc import Iterator

from attrs import frozen

__all__ = ["Event", "EventStream"]


@frozen(kw_only=True)
class Event:
    """One event: its name, empty if it has none, and its data, lines joined."""

    name: str = ""
    data: str = ""


class EventStream:
    """Splits a stream of bytes into events: `feed` what came, then `end`."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._line: list[str] = []
        self._after_return = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that these bytes complete."""
        yield from self._read(self._decode(data))

    def end(self) -> Iterator[Event]:
        """The event that was left open, if any."""
        yield from self._read(self._decode(b"", True) + "\n\n")

    def _read(self, text: str) -> Iterator[Event]:
        if text and self._after_return:
            text = text.removeprefix("\n")
            self._after_return = False
        if text.endswith("\r"):
            self._after_return = True
        first, *others = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line.append(first)
        if not others:
            return
        rest = others.pop()
        lines = ("".join(self._line), *others)
        self._line = [rest]
        for line in lines:
            if line:
                self._field(line)
            elif self._data or self._name:
                yield Event(name=self._name, data="\n".join(self._data))
                self._name, self._data = "", []

    def _field(self, line: str) -> None:
        """Take a line of an event; comments and fields that are not needed are left out."""
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif name == "event":
            self._name = value.removeprefix(" ")

"""What a client sends on its connection, as requests: their heads, the pieces of their bodies, and their ends. No I/O.

The parser is llhttp, Node's own; what it takes for a fault ends the connection. Beyond it, a request has one host, a
body in chunks is coded in no other way, and every part of a request that must arrive whole is bounded. A client that
would like to speak another protocol is answered in this one.
"""

from collections import deque
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import httptools
from attrs import frozen

__all__ = ["END", "HEAD_LIMIT", "NOT_SUPPORTED", "Ended", "Event", "Fault", "Head", "Incoming", "Piece"]

HEAD_LIMIT = 64 * 2**10
"""Bytes of request line and headers, and of any other part that must arrive whole."""

BAD_REQUEST = 400
HEAD_TOO_LARGE = 431
NOT_IMPLEMENTED = 501
NOT_SUPPORTED = 505

_OTHER_VERSION = ("Invalid HTTP version", "Pause on PRI/Upgrade")
"""What the parser says of a version that it does not know, and of HTTP/2."""


@frozen(kw_only=True)
class Head:
    """Request line and headers; the names of headers are lower case."""

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    keeps: bool = True
    """Whether the client speaks HTTP/1.1 and keeps the connection."""
    modern: bool = True
    """Whether it speaks HTTP/1.1, and so can be answered in chunks and asked to go on."""

    def get(self, name: bytes) -> bytes | None:
        """The first header of that name."""
        for known, value in self.headers:
            if known == name:
                return value
        return None

    def all(self, name: bytes) -> bytes:
        """What the headers of that name say together, empty if there are none."""
        return b", ".join([value for known, value in self.headers if known == name])


@frozen
class Piece:
    """A piece of a request's body."""

    data: bytes
    begins_chunk: bool


@frozen
class Fault:
    """The client does not speak HTTP/1.1; nothing more is read of what it sends."""

    status: int
    message: str


class Ended:
    """A request is complete, or the client has ended its side between two requests."""


END: Final = Ended()

Event: TypeAlias = Head | Piece | Fault | Ended


class Incoming:
    """Takes bytes as they come, and gives the events that they make, in order."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._broken = False
        self._unfinished = 0
        """Bytes since something was complete."""
        self._begin()

    def next(self) -> Event | None:
        """The next event; None where more must come first."""
        return self._events.popleft() if self._events else None

    def feed(self, data: bytes) -> None:
        """Take what came; nothing is the end of the client's side."""
        if self._broken:
            return
        if not data:
            self._events.append(Fault(BAD_REQUEST, "it broke off") if self._inside else END)
            self._broken = True
            return
        self._unfinished += len(data)
        self._parse(data)
        if self._unfinished > HEAD_LIMIT:
            self._fail(HEAD_TOO_LARGE, f"a part of it that must arrive whole is larger than {HEAD_LIMIT} bytes")

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._inside = self._headed = self._in_chunks = self._declined = False
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:  # goes on in HTTP/1.1
                rest = data[upgrade.args[0] :]
                data = self._without_upgrade() + rest if self._declined else rest
                self._begin()
            except httptools.HttpParserError as error:
                other = str(error) in _OTHER_VERSION
                self._fail(NOT_SUPPORTED if other else BAD_REQUEST, "another version of HTTP" if other else str(error))
                return

    def _without_upgrade(self) -> bytes:
        """The head of the request once more, without its wish to speak another protocol after it."""
        kept = (line for line in self._headers if line[0] != b"upgrade")
        lines = b"".join(b"%b: %b\r\n" % line for line in kept)
        version = self._parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self._parser.get_method(), self._target, version, lines)

    def _fail(self, status: int, message: str) -> None:
        if not self._broken:
            self._broken = True
            self._events.append(Fault(status, message))

    # What the parser finds

    def on_message_begin(self) -> None:
        self._inside = True
        self._headed = self._in_chunks = False
        self._target = b""
        self._headers = []

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed:  # else it is a trailer
            self._headers.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        self._unfinished = 0
        self._headed = True
        method = self._parser.get_method()
        self._declined = self._parser.should_upgrade() and method != b"CONNECT"
        if self._declined or self._broken:
            return
        version = self._parser.get_http_version()
        names = [name for name, _ in self._headers]
        if not version.startswith("1."):
            self._fail(NOT_SUPPORTED, f"HTTP/{version}")
        elif names.count(b"host") != 1 and (version == "1.1" or b"host" in names):
            self._fail(BAD_REQUEST, "it must have one Host header")
        elif any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in self._headers):
            self._fail(NOT_IMPLEMENTED, "its transfer-encoding is another than chunked")
        else:
            self._events.append(
                Head(
                    method=method.decode("ascii"),
                    path=_path(self._target.decode("ascii", "replace")),
                    headers=tuple(self._headers),
                    keeps=version == "1.1" and self._parser.should_keep_alive(),
                    modern=version == "1.1",
                )
            )

    def on_chunk_header(self) -> None:
        self._in_chunks = True

    def on_body(self, data: bytes) -> None:
        self._unfinished = 0
        if not self._broken:
            self._events.append(Piece(data, self._in_chunks))
            self._in_chunks = False

    def on_message_complete(self) -> None:
        self._unfinished = 0
        self._inside = False
        if not (self._declined or self._broken):
            self._events.append(END)


def _path(target: str) -> str:
    """The path of a request's target, which may be a whole URL; a target that has none stands for itself."""
    if target.startswith("/"):
        return target.partition("?")[0]
    try:
        return urlsplit(target).path or target
    except ValueError:
        return target

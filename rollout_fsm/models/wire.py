"""One HTTP/1.1 connection to an endpoint: a request out in one piece, its answer in as it comes.

What breaks between here and there is a `NetworkError`. A body is read by asking for its pieces, so there is no iterator
that could be left open.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress

import httptools
import trio
from attrs import define, field

from rollout_fsm.models.faults import BrokenError, HeaderError, SilentError
from rollout_fsm.models.tls import Secured

__all__ = ["Answer", "Connection", "Headers", "head_of"]

READ_SIZE = 64 * 1024
SEND_SIZE = 64 * 1024
"""Bytes that are sent at once, most requests whole."""
HEAD_LIMIT = 100 * 1024
"""Bytes of an answer's head, and of any other part of it that must arrive whole."""

Headers = Mapping[str, tuple[str, str]]
"""By lower-case name: the name as it is sent, and the value."""

_NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


def head_of(path: bytes, host: bytes, headers: Headers, credentials: bytes | None, length: int) -> bytes:
    """The head of a POST. Raises `HeaderError`, which does not quote the header: it may be the key."""
    own = {"host": (b"Host", host), "accept": (b"Accept", b"*/*"), "user-agent": (b"User-Agent", b"rollout-fsm")}
    try:
        own |= {name: (said.encode(), value.encode("latin-1")) for name, (said, value) in headers.items()}
    except UnicodeEncodeError:
        raise HeaderError from None
    if credentials is not None:
        own["authorization"] = (b"Authorization", credentials)
    own["content-length"] = (b"Content-Length", b"%d" % length)
    own.pop("transfer-encoding", None)  # the body goes out as it is, whatever was given
    for name, value in own.values():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise HeaderError
    lines = b"".join([b"%b: %b\r\n" % line for line in own.values()])
    return b"POST %b HTTP/1.1\r\n%b\r\n" % (path, lines)


@define(eq=False)
class Answer:
    """An answer whose head is there."""

    status: int
    _headers: Mapping[bytes, bytes]
    _connection: "Connection" = field(repr=False)

    def header(self, name: bytes) -> str | None:
        """A header's value, by its lower-case name."""
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def piece(self) -> bytes:
        """The next bytes of the body, as they were sent; empty when that was all. Raises `NetworkError`."""
        return await self._connection.piece()


class Connection:
    """A connection. `timeout` is in seconds without a byte, in either direction."""

    def __init__(
        self, stream: trio.SocketStream | Secured, socket: trio.socket.SocketType, timeout: float | None
    ) -> None:
        self._stream = stream
        self._socket = socket
        self._timeout = math.inf if timeout is None else timeout
        self._incoming = _Incoming()

    async def ask(self, head: bytes, content: bytes) -> Answer:
        """Send a request, and read the head of its answer."""
        incoming = self._incoming
        incoming.expect()
        with self._patience() as patience:
            with suppress(trio.BrokenResourceError):  # an endpoint that has had enough may have said why
                await self._send(head + content, patience)
            while not incoming.status:
                await self._more(patience)
            return Answer(incoming.status, incoming.headers, self)
        raise SilentError

    async def piece(self) -> bytes:
        """The next bytes of the answer's body; empty when that was all."""
        incoming = self._incoming
        if not incoming.body and not incoming.complete:
            with self._patience() as patience:
                while not incoming.body and not incoming.complete:
                    await self._more(patience)
            if patience.cancelled_caught:
                raise SilentError
        piece = b"".join(incoming.body)
        incoming.body.clear()
        return piece

    @property
    def reusable(self) -> bool:
        """Whether the answer has been read to its end, and another request may follow."""
        return self._incoming.complete and self._incoming.keeps and not self._incoming.body

    async def ended(self) -> bool:
        """Whether the endpoint has ended the connection while it was not used; what it says unasked is no answer.
        Cancelled, it closes the connection."""
        if self._socket.is_readable():
            return True
        try:
            return isinstance(self._stream, Secured) and await self._stream.holds_something()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it at once, without goodbyes."""
        self._socket.close()

    def _patience(self) -> trio.CancelScope:
        """What waits for the endpoint: so long after the last byte."""
        return trio.CancelScope(deadline=trio.current_time() + self._timeout)

    async def _send(self, data: bytes, patience: trio.CancelScope) -> None:
        """Send all of it, waiting for the endpoint with each piece anew."""
        await self._stream.send_all(data[:SEND_SIZE])
        for start in range(SEND_SIZE, len(data), SEND_SIZE):
            patience.deadline = trio.current_time() + self._timeout
            await self._stream.send_all(data[start : start + SEND_SIZE])

    async def _more(self, patience: trio.CancelScope) -> None:
        """Read on."""
        if self._incoming.fault is not None:
            raise BrokenError(self._incoming.fault)
        patience.deadline = trio.current_time() + self._timeout
        try:
            data = await self._stream.receive_some(READ_SIZE)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise BrokenError(str(error)) from error
        if data:
            self._incoming.feed(data)
        else:
            self._incoming.end()


class _Incoming:
    """The answer that arrives on a connection, parsed as far as it has come."""

    status: int
    """0 before its head is there."""
    headers: dict[bytes, bytes]
    body: list[bytes]
    """What has not been taken yet."""
    complete: bool
    keeps: bool
    """Whether the endpoint keeps the connection."""
    fault: str | None
    """Why nothing more will come."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.expect()

    def expect(self) -> None:
        """An answer is to come."""
        self.status, self.headers, self.body = 0, {}, []
        self.complete = self.keeps = self._framed = self._informational = False
        self.fault = None
        self._unfinished = 0
        """Bytes since something was complete."""

    def feed(self, data: bytes | bytearray) -> None:
        """Take what came."""
        self._unfinished += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("what came is no HTTP/1.1: it goes on in another protocol")
        except httptools.HttpParserError as error:
            self._break(f"what came is no HTTP/1.1: {error}")
        if self._unfinished > HEAD_LIMIT:
            self._break(f"a head of more than {HEAD_LIMIT} bytes")

    def end(self) -> None:
        """Nothing more comes; where the answer has no length of its own, this is its end."""
        if self.status and not self._framed:
            self.complete = True
        self._break("it was closed in the middle of the answer" if self.status else "it was closed without an answer")

    def _break(self, fault: str) -> None:
        self.keeps = False
        if not self.complete:
            self.fault = fault

    # What the parser finds

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: what the body's end says is not looked at."""
        if not self.status:
            name, value = name.lower(), value.strip()
            said = self.headers.get(name)
            self.headers[name] = value if said is None else b"%b, %b" % (said, value)

    def on_headers_complete(self) -> None:
        """The head is there; that of an informational answer (1xx) is not the one that was asked for."""
        status = self._parser.get_status_code()
        self._unfinished = 0
        self._informational = 100 <= status < 200
        if status < 100:
            self._break(f"what came is no HTTP/1.1: its status is {status}")
        if not self._informational and not self.complete:
            self.status = status
            coding = self.headers.get(b"transfer-encoding", b"")
            self._framed = b"content-length" in self.headers or b"chunked" in coding.lower()

    def on_body(self, data: bytes) -> None:
        """A piece of the body, as it was sent."""
        self._unfinished = 0
        if not self.complete:
            self.body.append(data)

    def on_message_complete(self) -> None:
        """The answer has ended, or an informational one before it."""
        self._unfinished = 0
        if self._informational:
            self.headers = {}
        elif not self.complete:
            self.complete, self.keeps = True, self._parser.should_keep_alive()

    def on_message_begin(self) -> None:
        """An answer begins: after the one that was asked for, none may."""
        if self.complete:
            self.keeps = False

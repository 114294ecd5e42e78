"""The sending side of one client's connection: a reply in one piece, or its head and then pieces as they are made."""

import trio

from rollout_fsm.gateway.incoming import Head
from rollout_fsm.gateway.reply import Headers, Reply
from rollout_fsm.gateway.shutdown import Shutdown

NO_CONTENT = 204


class Outgoing:
    """Sends the answers of one connection, one after the other."""

    def __init__(self, stream: trio.SocketStream, shutdown: Shutdown) -> None:
        self.closing = False
        """Whether the connection ends after this answer; said in its head, if it is known by then."""
        self._stream = stream
        self._shutdown = shutdown
        self._bodiless = self._chunked = self._complete = False
        self._begun = b""
        """The head of an answer that nothing was sent of yet."""

    @property
    def last(self) -> bool:
        """Whether no other answer follows."""
        return self.closing or self._shutdown.begun or not self._complete

    def expect(self, head: Head | None) -> None:
        """The next answer is to this request; None where it is to what is none."""
        self._complete = False
        self._bodiless = head is not None and head.method == "HEAD"
        """Whether the head of its answer is all that is wanted."""
        self._chunked = head is not None and head.modern
        if head is not None and not head.keeps:
            self.closing = True

    async def reply(self, reply: Reply) -> None:
        """Send a whole answer."""
        length = () if reply.status == NO_CONTENT else (("content-length", str(len(reply.body))),)
        head = self._head(reply.status, (*reply.headers, *length))
        await self._stream.send_all(head if self._bodiless else head + reply.body)
        self._complete = True

    def begin(self, status: int, headers: Headers) -> None:
        """An answer's body comes in pieces; its head goes out with the first."""
        if self._chunked:
            headers = (*headers, ("transfer-encoding", "chunked"))
        else:
            self.closing = True  # the end of the connection is that of the body
        self._begun = self._head(status, headers)

    async def send(self, piece: bytes) -> None:
        """Send the next piece of the body; returns when the client's side has room for more."""
        begun, self._begun = self._begun, b""
        await self._stream.send_all(begun + self._framed(piece))

    async def end(self, piece: bytes = b"") -> None:
        """Send the last piece of the body, and say that it is complete."""
        begun, self._begun = self._begun, b""
        await self._stream.send_all(begun + self._framed(piece) + (b"0\r\n\r\n" if self._chunked else b""))
        self._complete = True

    async def go_on(self) -> None:
        """Ask for the body of a request whose client waits to be asked."""
        await self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked and piece else piece

    def _head(self, status: int, headers: Headers) -> bytes:
        closing = (("connection", "close"),) if self.closing or self._shutdown.begun else ()
        lines = "".join(f"{name}: {value}\r\n" for name, value in (*headers, *closing))
        return f"HTTP/1.1 {status} \r\n{lines}\r\n".encode("latin-1")

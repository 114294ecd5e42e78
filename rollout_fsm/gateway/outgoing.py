"""The sending side of one client's connection: a reply in one piece, or its head and then pieces as they are made."""

import h11
import trio

from rollout_fsm.gateway.reply import Headers, Reply
from rollout_fsm.gateway.shutdown import Shutdown


class Outgoing:
    """Sends the answers of one connection, one after the other."""

    def __init__(self, stream: trio.SocketStream, http: h11.Connection, shutdown: Shutdown) -> None:
        self.bodiless = False
        """Whether the request that is answered wants the head of its answer only."""
        self.closing = False
        """Whether the connection ends after this answer; said in its head, if it is known by then."""
        self._stream = stream
        self._http = http
        self._shutdown = shutdown

    @property
    def last(self) -> bool:
        """Whether no other answer follows."""
        return self.closing or self._shutdown.begun or self._http.our_state is not h11.DONE

    async def reply(self, reply: Reply) -> None:
        """Send a whole answer."""
        length = () if reply.status == 204 else (("content-length", str(len(reply.body))),)
        pending = self._head(reply.status, (*reply.headers, *length))
        if not self.bodiless:
            pending += self._bytes(h11.Data(data=reply.body))
        await self._stream.send_all(pending + self._bytes(h11.EndOfMessage()))

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the head of an answer whose body comes in pieces."""
        await self._stream.send_all(self._head(status, headers))

    async def send(self, piece: bytes) -> None:
        """Send the next piece of the body; returns when the client's side has room for more."""
        await self._stream.send_all(self._bytes(h11.Data(data=piece)))

    async def end(self) -> None:
        """Say that the body is complete."""
        await self._stream.send_all(self._bytes(h11.EndOfMessage()))

    async def go_on(self) -> None:
        """Ask for the body of a request whose client waits to be asked."""
        await self._stream.send_all(
            self._bytes(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        )

    def _head(self, status: int, headers: Headers) -> bytes:
        closing = (("connection", "close"),) if self.closing or self._shutdown.begun else ()
        return self._bytes(h11.Response(status_code=status, headers=[*headers, *closing]))

    def _bytes(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

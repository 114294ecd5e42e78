"""One client's HTTP/1.1 connection: requests in, answers out, one after the other.

Knows nothing of models or rollouts; an `Application` does. Everything that a client sends is bounded: the head of a
request, its body and the number of its chunks, what it sends ahead while an answer is being made, and how long it sends
nothing while none is. A reader takes what the client sends, also while a call runs: when the client hangs up (its
sending side ends, or the connection breaks), the call is cancelled. A call answers with a reply, or sends pieces of its
own while it goes on.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import trio
from attrs import frozen

from rollout_fsm.gateway.incoming import HEAD_LIMIT, NOT_SUPPORTED, Ended, Event, Fault, Head, Incoming, Piece
from rollout_fsm.gateway.outgoing import Outgoing
from rollout_fsm.gateway.reply import Reply
from rollout_fsm.gateway.shutdown import Shutdown

__all__ = ["HEAD_LIMIT", "Application", "Call", "Connection", "Head"]

log = logging.getLogger("rollout_fsm.gateway")

AHEAD_LIMIT = 64 * 2**10
"""Bytes that a client may send ahead while its call runs. After these it is not read, and so not watched, any more."""

READ_SIZE = 64 * 2**10

IDLE = 60.0
"""Seconds in which a client has to send something of its next request; then the connection ends without a word."""

FREE_CHUNKS = 4096
"""How many chunks a body may come in, however small they are."""

CHUNK_SIZE = 64
"""How many bytes a body has to have for each chunk beyond the free ones: it is chunks that cost time, not bytes."""

CHUNKS_AT_ONCE = 256
"""After how many chunks others are let go on: one read may hold ten thousand."""

LINGER = 2.0
"""Seconds in which a client that was answered before it had said everything may read the answer."""


Call: TypeAlias = Callable[[bytearray, Outgoing], Awaitable[Reply | None]]
"""What answers a request, given its body: with a reply, or with None when it has sent one itself. Cancelled when the
client hangs up."""


class Application(Protocol):
    """What a connection serves."""

    @property
    def max_body(self) -> int:
        """The most bytes that a request's body may have."""

    def route(self, head: Head) -> Call | Reply:
        """What answers this request; a reply where its head is enough to answer it."""

    def refuse(self, head: Head | None, status: int, message: str, *, code: str | None = None) -> Reply:
        """An error for a request that is not answered otherwise, in the shape that its client reads."""


@frozen
class _Refusal:
    """A reply to a request that was not read to its end: the connection cannot go on after it."""

    reply: Reply


class Connection:
    """One connection, from its first request to its end."""

    def __init__(self, stream: trio.SocketStream, application: Application, shutdown: Shutdown) -> None:
        self._stream = stream
        self._application = application
        self._shutdown = shutdown
        self._in = Incoming()
        self._out = Outgoing(stream, shutdown)
        self._arrived = trio.lowlevel.ParkingLot()
        self._wanted = trio.lowlevel.ParkingLot()
        self._ahead = 0
        """Bytes that have arrived since all that had was used up."""
        self._gone = False
        """Whether the client has ended its side, or the connection."""
        self._asks = False
        """Whether the client waits to be asked for the body."""
        self._call: trio.CancelScope | None = None
        """The call that runs."""
        self._refused = False
        """Whether a request was answered before it had been read to its end."""

    async def run(self) -> None:
        """Serve requests until either side ends the connection. Raises nothing for what a client does."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                while await self._exchange():
                    pass
                nursery.cancel_scope.cancel()
            if self._refused:
                await self._linger()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.debug("a client broke its connection off: %s", error)

    async def _exchange(self) -> bool:
        """One request and its answer; returns whether another may follow."""
        received: tuple[Call | Reply, bytearray] | _Refusal | None = None
        with self._shutdown.interruptible() as patience:
            received = await self._receive(patience)
        if received is None:
            if patience.cancelled_caught and not self._shutdown.begun:
                log.debug("a client sent nothing for %g s", IDLE)
            return False
        if isinstance(received, _Refusal):
            self._refused = self._out.closing = True
            await self._out.reply(received.reply)
            return False
        answer, body = received
        reply = answer if isinstance(answer, Reply) else await self._watched(answer, body)
        if reply is not None:
            await self._out.reply(reply)
        return not self._out.last

    # Receiving

    async def _receive(self, patience: trio.CancelScope) -> tuple[Call | Reply, bytearray] | _Refusal | None:
        """The next request with what answers it; a refusal, or None where the client has ended the connection."""
        self._out.expect(None)
        head = await self._next(patience)
        if isinstance(head, Fault):
            return self._refusal(None, head)
        if not isinstance(head, Head):
            return None
        self._out.expect(head)
        answer = self._application.route(head)
        self._asks = head.modern and (head.get(b"expect") or b"").lower() == b"100-continue"
        if isinstance(answer, Reply) and self._asks:
            return _Refusal(answer)
        body = await self._body(head, answer, patience)
        return body if isinstance(body, _Refusal) else (answer, body)

    async def _body(self, head: Head, answer: Call | Reply, patience: trio.CancelScope) -> bytearray | _Refusal:
        """The body, empty if no call wants it; a refusal where it is too much, which is known as early as the head says
        so."""
        body = bytearray()
        length = int(head.get(b"content-length") or 0)  # the parser has checked that it is a number
        arrived = chunks = 0
        too_much = self._too_large(head, length)
        while too_much is None and not isinstance(event := await self._next(patience), Ended):
            if not isinstance(event, Piece):
                return self._refusal(head, event)
            arrived += len(event.data)
            chunks += event.begins_chunk
            if event.begins_chunk and chunks % CHUNKS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if not isinstance(answer, Reply):
                body += event.data
            too_much = self._too_large(head, arrived) or self._too_many(head, chunks, arrived)
        if too_much is not None:
            return _Refusal(answer if isinstance(answer, Reply) else too_much)
        return body

    def _too_large(self, head: Head, size: int) -> Reply | None:
        limit = self._application.max_body
        if size <= limit:
            return None
        said = f"the request body is larger than {limit} bytes"
        return self._application.refuse(head, 413, said, code="body_too_large")

    def _too_many(self, head: Head, chunks: int, size: int) -> Reply | None:
        if chunks <= FREE_CHUNKS + size // CHUNK_SIZE:
            return None
        said = (
            f"the request body: {chunks:,} chunks for {size:,} bytes are too many: send larger chunks, of {CHUNK_SIZE} "
            "bytes or more, or the body in one piece with its content-length"
        )
        return self._application.refuse(head, 400, said)

    def _refusal(self, head: Head | None, fault: Fault | Head) -> _Refusal:
        """What a client is told that does not speak HTTP/1.1."""
        assert isinstance(fault, Fault)
        log.debug("a client does not speak HTTP/1.1: %s", fault.message)
        if fault.status == NOT_SUPPORTED:
            said = f"{fault.message} is not supported: speak HTTP/1.1"
        else:
            said = f"not a valid HTTP/1.1 request: {fault.message}"
        return _Refusal(self._application.refuse(head, fault.status, said))

    async def _next(self, patience: trio.CancelScope) -> Event:
        """What the client says next, for which it is given so much time."""
        while (event := self._in.next()) is None:
            if self._asks:
                self._asks = False
                await self._out.go_on()
                continue
            self._ahead = 0
            self._wanted.unpark_all()
            patience.deadline = trio.current_time() + IDLE
            await self._arrived.park()
        self._asks = False
        return event

    async def _read(self) -> None:
        """Take what the client sends, up to a bound while it is not used, and cancel the call when the client hangs
        up."""
        while not self._gone:
            while self._ahead >= AHEAD_LIMIT:
                await self._wanted.park()
            try:
                data = await self._stream.receive_some(READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            self._ahead += len(data)
            self._gone = not data
            self._in.feed(data)
            del data  # the next may be long in coming
            self._arrived.unpark_all()
            if self._gone:
                self._hang_up()

    # Answering

    async def _watched(self, call: Call, body: bytearray) -> Reply | None:
        """What the call answers; None if it has sent its answer, or if the client hung up and it was cancelled."""
        reply: Reply | None = None
        with trio.CancelScope() as self._call:
            if self._gone:
                self._hang_up()
            reply = await call(body, self._out)
        self._call = None
        return reply

    def _hang_up(self) -> None:
        """The client waits for no answer any more."""
        if self._call is not None:
            log.debug("a client hung up on its call")
            self._out.closing = True
            self._call.cancel()

    async def _linger(self) -> None:
        """Let the client read its answer: a socket closed on unread input resets the connection and loses it."""
        with self._shutdown.interruptible(), trio.move_on_after(LINGER):
            await self._stream.send_eof()
            left = self._application.max_body
            while left > 0 and (data := await self._stream.receive_some(READ_SIZE)):
                left -= len(data)

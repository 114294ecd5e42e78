"""One client's HTTP/1.1 connection: requests in, answers out, one after the other.

Knows nothing of models or rollouts; an `Application` does. Everything that a client sends is bounded: the head of a
request, its body and the number of its chunks, what it sends ahead while an answer is being made, and how long it sends
nothing while none is. While a call runs, the client is watched: when it hangs up (its sending side ends, or the
connection breaks), the call is cancelled. A call answers with a reply, or sends pieces of its own while it goes on.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

import h11
import trio
from attrs import frozen

from rollout_fsm.gateway.outgoing import Outgoing
from rollout_fsm.gateway.reply import Reply
from rollout_fsm.gateway.shutdown import Shutdown

log = logging.getLogger("rollout_fsm.gateway")

HEAD_LIMIT = 64 * 2**10
"""Bytes of request line and headers, and of any other part that must arrive whole."""

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


@frozen(kw_only=True)
class Head:
    """Request line and headers; the names of headers are lower case."""

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def get(self, name: bytes) -> bytes | None:
        """The first header of that name."""
        return next((value for known, value in self.headers if known == name), None)


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


class _ManyChunksError(Exception):
    """A body comes in very many chunks for its size."""


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
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
        self._out = Outgoing(stream, self._http, shutdown)

    async def run(self) -> None:
        """Serve requests until either side ends the connection. Raises nothing for what a client does."""
        try:
            while await self._exchange():
                self._http.start_next_cycle()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.debug("a client broke its connection off: %s", error)

    async def _exchange(self) -> bool:
        """One request and its answer; returns whether another may follow."""
        received: tuple[Call | Reply, bytearray] | _Refusal | None = None
        with self._shutdown.interruptible():
            received = await self._receive()
        if received is None:
            return False
        if isinstance(received, _Refusal):
            self._out.closing = True
            await self._out.reply(received.reply)
            await self._linger()
            return False
        answer, body = received
        reply = answer if isinstance(answer, Reply) else await self._watched(answer, body)
        if reply is not None:
            await self._out.reply(reply)
        return not self._out.last and self._http.their_state is h11.DONE

    # Receiving

    async def _receive(self) -> tuple[Call | Reply, bytearray] | _Refusal | None:
        """The next request with what answers it; a refusal, or None where the client has ended the connection."""
        self._out.bodiless = False
        refuse, head = self._application.refuse, None
        try:
            event = await self._next()
            if not isinstance(event, h11.Request):
                return None
            if not event.http_version.startswith(b"1."):
                version = event.http_version.decode("ascii")
                return _Refusal(refuse(None, 505, f"HTTP/{version} is not supported: speak HTTP/1.1"))
            head = _head(event)
            self._out.bodiless = head.method == "HEAD"
            answer = self._application.route(head)
            if isinstance(answer, Reply) and self._http.they_are_waiting_for_100_continue:
                return _Refusal(answer)
            body = await self._body(head, kept=not isinstance(answer, Reply))
        except h11.RemoteProtocolError as error:
            log.debug("a client does not speak HTTP/1.1: %s", error)
            return _Refusal(refuse(head, error.error_status_hint, f"not a valid HTTP/1.1 request: {error}"))
        except _ManyChunksError as error:
            return _Refusal(answer if isinstance(answer, Reply) else refuse(head, 400, str(error)))
        except trio.TooSlowError:
            log.debug("a client sent nothing for %g s", IDLE)
            return None
        if body is None:
            limit = self._application.max_body
            too_large = refuse(head, 413, f"the request body is larger than {limit} bytes", code="body_too_large")
            return _Refusal(answer if isinstance(answer, Reply) else too_large)
        return answer, body

    async def _body(self, head: Head, *, kept: bool) -> bytearray | None:
        """The body, empty if it is not kept; None if it is too large, which is known as early as the head says so.
        Raises `_ManyChunksError`."""
        body = bytearray()
        length = int(head.get(b"content-length") or 0)  # h11 has checked that it is a number
        limit = self._application.max_body
        if length > limit:
            return None
        arrived = chunks = 0
        while isinstance(event := await self._next(), h11.Data):
            arrived += len(event.data)
            if arrived > limit:
                return None
            chunks += event.chunk_start
            if chunks > FREE_CHUNKS + arrived // CHUNK_SIZE:
                raise _ManyChunksError(
                    f"the request body: {chunks:,} chunks for {arrived:,} bytes are too many: send larger chunks, "
                    f"of {CHUNK_SIZE} bytes or more, or the body in one piece with its content-length"
                )
            if event.chunk_start and chunks % CHUNKS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if kept:
                body += event.data
        return body

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """What the client says next. Raises `trio.TooSlowError` where it says nothing."""
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._out.go_on()
            with trio.fail_after(IDLE):
                data = await self._stream.receive_some(READ_SIZE)
            self._http.receive_data(data)

    # Answering

    async def _watched(self, call: Call, body: bytearray) -> Reply | None:
        """What the call answers; None if it has sent its answer, or if the client hung up and it was cancelled."""
        reply: Reply | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            reply = await call(body, self._out)
            nursery.cancel_scope.cancel()
        return reply

    async def _watch(self, call: trio.CancelScope) -> None:
        """Cancel the call when the client hangs up; keep what it sends ahead for the next request."""
        ahead = 0
        while ahead < AHEAD_LIMIT:
            try:
                data = await self._stream.receive_some(READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                log.debug("a client hung up on its call")
                self._out.closing = True
                call.cancel()
                return
            ahead += len(data)
            self._http.receive_data(data)

    async def _linger(self) -> None:
        """Let the client read its answer: a socket closed on unread input resets the connection and loses it."""
        with self._shutdown.interruptible(), trio.move_on_after(LINGER):
            await self._stream.send_eof()
            left = self._application.max_body
            while left > 0 and (data := await self._stream.receive_some(READ_SIZE)):
                left -= len(data)


def _head(event: h11.Request) -> Head:
    return Head(
        method=event.method.decode("ascii"),
        path=_path(event.target.decode("ascii", "replace")),
        headers=tuple((bytes(name), bytes(value)) for name, value in event.headers),
    )


def _path(target: str) -> str:
    """The path of a request's target, which may be a whole URL; a target that has none stands for itself."""
    if target.startswith("/"):
        return target.partition("?")[0]
    try:
        return urlsplit(target).path or target
    except ValueError:
        return target

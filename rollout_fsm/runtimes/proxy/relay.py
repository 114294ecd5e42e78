"""Bytes between a client and its origin: through a tunnel as they come, or as one HTTP request and its response.

Nothing is read from one side that the other has not taken: what is held is one piece in each direction.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import h11
import trio

from rollout_fsm.runtimes.proxy.request import Rejected, back
from rollout_fsm.runtimes.proxy.speaking import CHUNK, GONE, Speaker

Moved: TypeAlias = Callable[[], None]
"""To be called when bytes have moved."""


@contextmanager
def idle_at_most(seconds: float) -> Iterator[Moved]:
    """Leave the block when nothing has moved for so long."""
    with trio.move_on_after(seconds) as scope:

        def moved() -> None:
            scope.deadline = trio.current_time() + seconds

        yield moved


async def tunnel(client: trio.SocketStream, origin: trio.SocketStream, early: bytes, moved: Moved) -> None:
    """Carry bytes both ways until both sides have ended theirs, or one has broken off. `early` is what came from the
    client already."""
    async with trio.open_nursery() as nursery:

        async def carry(source: trio.SocketStream, sink: trio.SocketStream, data: bytes | bytearray) -> None:
            try:
                await sink.send_all(data)
                while data := await source.receive_some(CHUNK):
                    moved()
                    await sink.send_all(data)
                    moved()
                await sink.send_eof()
            except GONE:
                nursery.cancel_scope.cancel()

        nursery.start_soon(carry, client, origin, early)
        nursery.start_soon(carry, origin, client, b"")


async def forward(client: Speaker, origin: Speaker, request: h11.Request, moved: Moved) -> None:
    """Send on a request whose head the client has sent, and give the client the response. Raises `Rejected` for an
    origin that answers badly, and for a body that is none."""
    faults: list[tuple[int, str]] = []
    if client.http.they_are_waiting_for_100_continue:
        await client.say(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
    async with trio.open_nursery() as nursery:

        async def ends(exchange: Callable[[], Awaitable[bool]]) -> None:
            try:
                over = await exchange()
            except Rejected as rejected:
                faults.append((rejected.status, str(rejected)))
                over = True
            except GONE:  # the client's side: nobody is left to be answered
                over = True
            if over:
                nursery.cancel_scope.cancel()

        nursery.start_soon(ends, lambda: _upload(client, origin, request, moved))
        nursery.start_soon(ends, lambda: _download(client, origin, moved))
    for status, why in faults[:1]:
        raise Rejected(status, why)


async def _upload(client: Speaker, origin: Speaker, request: h11.Request, moved: Moved) -> bool:
    """The request with its body, without trailers. False: the exchange is not over with it."""
    event: h11.Event = request
    while True:
        try:
            await origin.say(event)
        except GONE:
            return False  # it takes no more, and may have answered all the same
        if isinstance(event, h11.EndOfMessage):
            return False
        moved()
        try:
            event = await client.hear()
        except h11.RemoteProtocolError as error:
            raise Rejected(400, f"the body of the request is not valid HTTP/1.1: {error}") from None
        if isinstance(event, h11.EndOfMessage):
            event = h11.EndOfMessage()
        moved()


async def _download(client: Speaker, origin: Speaker, moved: Moved) -> bool:
    """The response with its body, without trailers. True: the exchange is over with it."""
    while True:
        try:
            event = await origin.hear()
        except GONE as error:
            raise Rejected(502, f"the origin broke off: {error}") from None
        except h11.RemoteProtocolError as error:
            raise Rejected(502, f"the origin's answer is not valid HTTP/1.1: {error}") from None
        moved()
        if isinstance(event, h11.InformationalResponse):
            continue  # nothing that this proxy asked for, and nothing that a client needs
        if isinstance(event, h11.Response):
            event = back(event)
        elif isinstance(event, h11.EndOfMessage):
            event = h11.EndOfMessage()
        await client.say(event)
        moved()
        if isinstance(event, h11.EndOfMessage):
            return True

"""One client's connection to the proxy: one request, and what becomes of it.

A connection carries one request and its answer, or one tunnel, and is over then: nothing that a client sends after a
request gets to where that request went.
"""

import logging
from typing import TYPE_CHECKING

import h11
import trio
from attrs import define, field

from rollout_fsm.runtimes.proxy.relay import forward, idle_at_most, tunnel
from rollout_fsm.runtimes.proxy.request import Rejected, onward, wanted
from rollout_fsm.runtimes.proxy.speaking import CHUNK, GONE, Speaker, speaker

if TYPE_CHECKING:
    from rollout_fsm.runtimes.proxy.proxy import NetworkProxy

log = logging.getLogger("rollout_fsm.network")

LONGEST = 1000
"""Characters of an error: it may have what the client said in it."""
LINGER = 2.0
"""Seconds in which a client that was turned away before it had said everything may read why."""
LINGER_LIMIT = 2**20
"""Bytes that it may go on sending meanwhile."""


@define(eq=False, repr=False)
class Visit:
    """A connection, from its first byte to its last."""

    proxy: "NetworkProxy"
    client: Speaker
    _bodiless: bool = field(init=False, default=False)

    async def run(self, *, crowded: bool) -> None:
        """Serve it. Raises nothing for what a client or an origin does."""
        try:
            try:
                if crowded:
                    raise Rejected(503, f"{self.proxy.max_connections} connections are open already: close some")
                await self._serve()
            except Rejected as rejected:
                await self._turn_away(rejected.status, str(rejected))
        except GONE as error:
            log.debug("a client of the proxy broke its connection off: %s", error)

    async def _serve(self) -> None:
        """Raises `Rejected` for what is not done, one of `GONE` where the client is."""
        proxy = self.proxy
        request = await self._head()
        if request is None:
            return
        self._bodiless = request.method == b"HEAD"
        target = wanted(request)
        forwarded = None if target.path is None else onward(request, target)
        addresses = await proxy.find(target.host, target.port)
        with proxy.passing(target.host, target.port, addresses):
            async with await proxy.reach(addresses, target.port) as origin:
                with idle_at_most(proxy.idle_timeout) as moved:
                    if forwarded is not None:
                        await forward(self.client, speaker(h11.CLIENT, origin), forwarded, moved)
                        return
                    await self.client.say(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
                    early, _ = self.client.http.trailing_data
                    await tunnel(self.client.stream, origin, early, moved)

    async def _head(self) -> h11.Request | None:
        """The client's request; None if it ends the connection without one. Raises `Rejected`."""
        with trio.move_on_after(self.proxy.head_timeout):
            try:
                event = await self.client.hear()
            except h11.RemoteProtocolError as error:
                raise Rejected(error.error_status_hint, f"this is no HTTP/1.1 request: {error}") from None
            return event if isinstance(event, h11.Request) else None
        raise Rejected(408, f"no whole request came within {self.proxy.head_timeout} s")

    async def _turn_away(self, status: int, why: str) -> None:
        """Answer with an error, where no other answer has begun."""
        if self.client.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = f"{why[:LONGEST]}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(text))),
            ("connection", "close"),
        ]
        await self.client.say(h11.Response(status_code=status, headers=headers))
        if not self._bodiless:
            await self.client.say(h11.Data(data=text))
        await self._linger()

    async def _linger(self) -> None:
        """Let the client read its answer: a socket closed on unread input resets the connection and loses it."""
        with trio.move_on_after(LINGER):
            await self.client.stream.send_eof()
            left = LINGER_LIMIT
            while left > 0 and (data := await self.client.stream.receive_some(CHUNK)):
                left -= len(data)

"""A wire between a program and a server that a test can cut."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import define, field


@define(eq=False)
class Relay:
    """Passes bytes both ways, until it is cut."""

    target: tuple[str, int]
    url: str = ""
    requests: int = 0
    """How many pieces came from clients: each request of these tests fits into one."""
    _asked: trio.Event = field(factory=trio.Event)
    _wires: set[trio.CancelScope] = field(factory=set)

    async def until_asked(self, times: int) -> None:
        """Wait until so many requests came."""
        while self.requests < times:
            await self._asked.wait()

    def cut(self) -> None:
        """Break every connection off."""
        for wire in self._wires:
            wire.cancel()

    async def connection(self, client: trio.SocketStream) -> None:
        """One client's way to the server."""
        with trio.CancelScope() as wire:
            self._wires.add(wire)
            async with client, await trio.open_tcp_stream(*self.target) as server, trio.open_nursery() as nursery:
                nursery.start_soon(self._pass, server, client, False)
                await self._pass(client, server, True)
                nursery.cancel_scope.cancel()
        self._wires.discard(wire)

    async def _pass(self, source: trio.SocketStream, to: trio.SocketStream, asking: bool) -> None:
        while data := await source.receive_some():
            await to.send_all(data)
            if asking:
                self.requests += 1
                self._asked.set()
                self._asked = trio.Event()


@asynccontextmanager
async def relaying(url: str) -> AsyncIterator[Relay]:
    """A relay to the server at `http://HOST:PORT…`, and its own URL with the same end."""
    host, _, rest = url.removeprefix("http://").partition(":")
    port, slash, path = rest.partition("/")
    relay = Relay((host, int(port)))
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        relay.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}{slash}{path}"
        nursery.start_soon(trio.serve_listeners, relay.connection, [listener])
        yield relay
        nursery.cancel_scope.cancel()

"""A small HTTP site on the loopback interface: what programs in a box ask for, to see what they reach.

It serves one page, and one address that never answers, so that the end of who asks for it is seen.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from rollout_fsm.runtime import Route

__all__ = ["Site", "open_site"]

LONGEST = 1 << 16
"""Bytes of the longest request."""


@define(eq=False)
class Site:
    """An open site."""

    url: str
    page: str = "the page of the site\n"
    visits: int = field(default=0, init=False)
    """How many connections there were."""
    held: trio.Event = field(factory=trio.Event, init=False)
    """Set when somebody waits for what never comes."""
    hung_up: trio.Event = field(factory=trio.Event, init=False)
    """Set when who waited is gone."""

    @property
    def route(self) -> Route:
        """The URL of the page, as the framework's own routes are given to a runtime."""
        return Route(f"{self.url}/page", self.answer)

    @property
    def endless(self) -> Route:
        """The URL of what never answers."""
        return Route(f"{self.url}/endless", self.answer)

    async def answer(self, stream: trio.SocketStream) -> None:
        """Answer one client."""
        self.visits += 1
        try:
            asked = await _request(stream)
            if asked.startswith(b"GET /endless"):
                self.held.set()
                while await stream.receive_some():
                    pass
            elif asked:
                body = self.page.encode()
                await stream.send_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
                await stream.send_all(body)
        except trio.BrokenResourceError:
            pass  # the client is gone
        finally:
            if self.held.is_set():
                self.hung_up.set()
            await trio.aclose_forcefully(stream)


async def _request(stream: trio.SocketStream) -> bytes:
    asked = b""
    while b"\r\n\r\n" not in asked and len(asked) < LONGEST:
        if not (more := await stream.receive_some()):
            return b""
        asked += more
    return asked


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    """Open a site for a block, on a free port."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    site = Site(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, site.answer, listeners)
        yield site
        nursery.cancel_scope.cancel()

"""One side of HTTP/1.1 over a stream."""

import h11
import trio
from attrs import define

CHUNK = 64 * 2**10
"""Bytes read at once."""
HEAD_LIMIT = 64 * 2**10
"""Bytes of a request line or a status line and its headers."""
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
"""How it shows that the other side has broken off."""


@define(eq=False, repr=False)
class Speaker:
    """A connection as this side speaks on it, as `h11.SERVER` or `h11.CLIENT`."""

    http: h11.Connection
    stream: trio.SocketStream

    async def hear(self) -> h11.Event:
        """The next event of the other side. Raises `h11.RemoteProtocolError` for what is no HTTP, one of `GONE` where
        it has broken off."""
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.stream.receive_some(CHUNK))
        assert isinstance(event, h11.Event)
        return event

    async def say(self, event: h11.Event) -> None:
        """Send an event. Raises one of `GONE` where the other side has broken off."""
        await self.stream.send_all(self.http.send(event) or b"")


def speaker(role: type[h11.CLIENT] | type[h11.SERVER], stream: trio.SocketStream) -> Speaker:
    """A side that has said nothing yet."""
    return Speaker(h11.Connection(role, max_incomplete_event_size=HEAD_LIMIT), stream)

"""TLS over a connection to an endpoint. Whether it holds something that nobody has read yet can be asked.

The end of a connection, and what an endpoint says unasked, may come together with the answer before it. Without TLS
both are seen by looking at the socket; over TLS they may have been taken from it already.
"""

import ssl

import trio

__all__ = ["Secured"]


class Secured:
    """A stream over TLS, with the host of that name."""

    def __init__(self, stream: trio.SocketStream, context: ssl.SSLContext, host: str) -> None:
        self._below = _Below(stream)
        self._tls = trio.SSLStream(self._below, context, server_hostname=host, https_compatible=True)
        self.do_handshake = self._tls.do_handshake
        self.send_all = self._tls.send_all
        self.receive_some = self._tls.receive_some

    async def holds_something(self) -> bool:
        """Whether something is there to be read, the end included. Waits for nothing, and loses what it finds."""
        self._below.waits = False
        try:
            await self._tls.receive_some(1)
        except trio.WouldBlock:
            return False
        except trio.BrokenResourceError:
            return True
        finally:
            self._below.waits = True
        return True


class _Below(trio.abc.Stream):
    """What TLS is spoken over."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.waits = True
        """Whether it may be waited for what comes next."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if not self.waits:
            raise trio.WouldBlock
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()

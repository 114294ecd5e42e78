"""A connection over TLS is used again only where the endpoint has said nothing but the answer."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trustme

from rollout_fsm.models import connections
from tests.models.misbehaving import Server
from tests.models.test_connections import OK, ask, client

BAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"


class Together(trio.abc.Stream):
    """Sends what it is given in one piece, once something is waited for."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._given = b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self._given += data

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        given, self._given = self._given, b""
        await self._stream.send_all(given)
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def answering(monkeypatch: pytest.MonkeyPatch, *said: bytes) -> AsyncIterator[Server]:
    """A server that says this to each request, over TLS and in one piece. Nothing is its goodbye."""
    authority, asking = trustme.CA(), ssl.create_default_context()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(asking)
    monkeypatch.setattr(connections, "_tls", lambda: asking)
    server = Server("")

    async def serve(stream: trio.SocketStream) -> None:
        server.connections += 1
        secured = trio.SSLStream(Together(stream), context, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError):  # the client has gone without a goodbye of its own
            while await secured.receive_some():
                for piece in said:
                    await (secured.send_all(piece) if piece else secured.unwrap())

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        server.base_url = f"https://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        yield server
        nursery.cancel_scope.cancel()


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("said", "kept"), [((OK,), True), ((OK, BAD), False), ((OK, b""), False), ((OK, BAD, b""), False)]
)
async def test_what_came_together_with_an_answer_is_no_answer_to_the_next_request(
    said: tuple[bytes, ...], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(monkeypatch, *said) as server, client() as asking:
        for _ in range(3):
            assert await ask(asking, server) == (200, b"ok")
        assert server.connections == (1 if kept else 3)


@pytest.mark.real_time
async def test_a_call_that_is_cancelled_while_its_connection_is_looked_at_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with answering(monkeypatch, OK) as server, client() as asking:
        await ask(asking, server)
        with trio.CancelScope() as scope:
            scope.cancel()
            await ask(asking, server)
        await ask(asking, server)
        assert server.connections == 2

"""An Internet of socket pairs: names that lead where a test says, servers at addresses of their choice, and a proxy
before them. All in one process and at once, so that a virtual clock can run beside it."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, TypeAlias

import trio
from attrs import define, field

from rollout_fsm.network import Address, NetworkPolicy, Policies
from rollout_fsm.runtimes.proxy import NetworkProxy

Server: TypeAlias = Callable[[trio.SocketStream], Awaitable[None]]
PUBLIC = "93.184.216.34"
OTHER = "151.101.0.223"


@define
class Internet:
    """What there is outside. A name with several lists of addresses answers with the next one each time it is asked."""

    nursery: trio.Nursery
    names: dict[str, list[list[str]]] = field(factory=dict)
    servers: dict[tuple[str, int], Server] = field(factory=dict)
    looked_up: list[str] = field(factory=list)
    dialled: list[tuple[str, int]] = field(factory=list)

    async def resolve(self, name: str, port: int) -> Sequence[Address]:
        self.looked_up.append(name)
        await trio.lowlevel.checkpoint()
        if name not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answers = self.names[name]
        return [ip_address(address) for address in (answers.pop(0) if len(answers) > 1 else answers[0])]

    async def connect(self, address: Address, port: int) -> trio.SocketStream:
        self.dialled.append((str(address), port))
        await trio.lowlevel.checkpoint()
        if (str(address), port) not in self.servers:
            raise ConnectionRefusedError("refused")
        ours, theirs = pair()
        self.nursery.start_soon(_serve, self.servers[str(address), port], theirs)
        return ours


@define
class Site:
    """A proxy before an Internet."""

    net: Internet
    proxy: NetworkProxy

    async def open(self) -> trio.SocketStream:
        """A client's connection to the proxy."""
        ours, theirs = pair()
        self.net.nursery.start_soon(_serve, self.proxy.answer, theirs)
        return ours

    async def ask(self, *said: bytes, end: bool = False) -> bytes:
        """All that the proxy says to a client that says this."""
        async with await self.open() as client:
            for piece in said:
                await client.send_all(piece)
            if end:
                await client.send_eof()
            return await everything(client)


@asynccontextmanager
async def site(*policies: NetworkPolicy, **options: Any) -> AsyncIterator[Site]:
    """A proxy with these policies; example.org and other.example are two servers that tell what reached them."""
    async with trio.open_nursery() as nursery:
        net = Internet(nursery)
        net.names = {"example.org": [[PUBLIC]], "other.example": [[OTHER]]}
        net.servers = {(PUBLIC, 80): echo, (PUBLIC, 443): echo, (OTHER, 80): echo}
        yield Site(net, NetworkProxy(policies=Policies(policies), resolve=net.resolve, connect=net.connect, **options))
        nursery.cancel_scope.cancel()


def pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    one, other = socket.socketpair()
    return trio.SocketStream(trio.socket.from_stdlib_socket(one)), trio.SocketStream(
        trio.socket.from_stdlib_socket(other)
    )


async def everything(stream: trio.SocketStream) -> bytes:
    return b"".join([bytes(chunk) async for chunk in stream])


async def echo(stream: trio.SocketStream) -> None:
    """Sends back what comes, until that ends."""
    async for chunk in stream:
        await stream.send_all(chunk)


def web(*answers: bytes) -> tuple[Server, bytearray]:
    """A server that says this once the head of a request is there; and what it has heard."""
    heard = bytearray()

    async def serve(stream: trio.SocketStream) -> None:
        while b"\r\n\r\n" not in heard:
            chunk = await stream.receive_some()
            if not chunk:
                return
            heard.extend(chunk)
        for answer in answers:
            await stream.send_all(answer)
        await stream.send_eof()
        heard.extend(await everything(stream))

    return serve, heard


async def _serve(server: Server, stream: trio.SocketStream) -> None:
    async with stream:
        try:
            await server(stream)
        except trio.BrokenResourceError:
            return


async def opened(here: Site, connect: bytes) -> trio.SocketStream:
    """A tunnel that the proxy has opened."""
    client = await here.open()
    await client.send_all(connect)
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        head += await client.receive_some(1)
    assert head.startswith(b"HTTP/1.1 200 "), head
    return client

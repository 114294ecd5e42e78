"""A client that writes bytes as it pleases, and reads replies with a parser of its own."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from attrs import define, field, frozen

from rollout_fsm.gateway import Gateway


@frozen
class Answer:
    """A reply as it came over the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.document["error"]

    @property
    def events(self) -> list[str]:
        """The data of each server-sent event."""
        return [event.removeprefix("data: ") for event in self.body.decode().split("\n\n") if event]


@define(eq=False)
class Raw:
    """One connection."""

    stream: trio.SocketStream
    buffer: bytes = field(default=b"", init=False)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def ask(self, data: bytes, *, bodiless: bool = False) -> Answer:
        await self.send(data)
        return await self.answer(bodiless=bodiless)

    async def answer(self, *, bodiless: bool = False) -> Answer:
        """The next reply, its body by length, in chunks, or up to the end of the connection."""
        head = (await self.until(b"\r\n\r\n")).decode("ascii")
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)}
        status = int(first.split(" ")[1])
        if bodiless or status in (100, 204):
            return Answer(status, headers, b"")
        if "content-length" in headers:
            return Answer(status, headers, await self.exactly(int(headers["content-length"])))
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, await self.chunks())
        return Answer(status, headers, await self.rest())

    async def chunks(self) -> bytes:
        body = b""
        while size := int(await self.until(b"\r\n"), 16):
            body += (await self.exactly(size + 2))[:-2]
        await self.until(b"\r\n")
        return body

    async def until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            await self.more()
        found, _, self.buffer = self.buffer.partition(mark)
        return found

    async def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            await self.more()
        found, self.buffer = self.buffer[:size], self.buffer[size:]
        return found

    async def more(self) -> None:
        data = await self.stream.receive_some()
        assert data, f"the connection ended after {self.buffer!r}"
        self.buffer += data

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        try:
            while data := await self.stream.receive_some():
                self.buffer += data
        except trio.BrokenResourceError:
            self.buffer += b"<reset>"
        found, self.buffer = self.buffer, b""
        return found

    async def ended(self) -> bool:
        """Waits for the end of the connection; whether nothing came before it."""
        return await self.rest() in (b"", b"<reset>")


@asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[Raw]:
    """A connection to a gateway."""
    host, port = gateway.url.removeprefix("http://").removesuffix("/v1").rsplit(":", 1)
    async with await trio.open_tcp_stream(host.strip("[]"), int(port)) as stream:
        yield Raw(stream)


def body_of(text: str = "2 + 2?", **more: object) -> bytes:
    """A request's body with one message."""
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **more}).encode()


def post(
    secret: str, body: bytes | None = None, *headers: str, path: str = "/v1/chat/completions", method: str = "POST"
) -> bytes:
    """A whole request."""
    body = body_of() if body is None else body
    return head(secret, f"Content-Length: {len(body)}", *headers, path=path, method=method) + body


def get(secret: str, path: str = "/v1/models", method: str = "GET") -> bytes:
    """A request without a body."""
    return head(secret, path=path, method=method)


def head(secret: str, *headers: str, path: str = "/v1/chat/completions", method: str = "POST") -> bytes:
    """Request line and headers."""
    lines = [f"{method} {path} HTTP/1.1", "Host: gateway", *headers]
    if secret:
        lines.append(f"Authorization: Bearer {secret}")
    return "\r\n".join([*lines, "", ""]).encode()

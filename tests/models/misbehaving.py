"""An HTTP server on raw sockets that does what a test asks of it, well or badly, and tells what it heard.

Each connection is served by one behaviour, an async function of the stream and the request. It says when it heard a
request and when a client has gone, as events to wait for; it never waits for time.
"""

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import trio
from attrs import define, field, frozen


@frozen(kw_only=True)
class Heard:
    """A request as it came."""

    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        asked = json.loads(self.body)
        assert isinstance(asked, dict)
        return asked


Behaviour = Callable[[trio.SocketStream, Heard], Awaitable[None]]


@define(eq=False)
class Server:
    """What a test sees of the server."""

    base_url: str
    heard: list[Heard] = field(factory=list)
    connections: int = 0
    gone: int = 0
    _changed: trio.Event = field(factory=trio.Event)

    def tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, condition: Callable[["Server"], bool]) -> None:
        """Wait until something that was heard or lost makes the condition true."""
        while not condition(self):
            await self._changed.wait()


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[Server]:
    """A server whose every request meets this behaviour. Connections are kept as long as both sides like."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = Server(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1")

        async def connection(stream: trio.SocketStream) -> None:
            server.connections += 1
            try:
                while (request := await _request(stream)) is not None:
                    server.heard.append(request)
                    server.tell()
                    await behaviour(stream, request)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client hung up, or the behaviour did: both are what is tested
            finally:
                server.gone += 1
                server.tell()

        nursery.start_soon(trio.serve_listeners, connection, [listener])
        yield server
        nursery.cancel_scope.cancel()


async def _request(stream: trio.SocketStream) -> Heard | None:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := await stream.receive_some(65536)):
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive_some(65536)
    return Heard(line=line, headers=headers, body=body)


def answers(
    body: object, *, status: int = 200, content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> Behaviour:
    """Answers with this body: bytes as they are, anything else as JSON."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Content-Type": content_type, "Content-Length": str(len(payload)), **(headers or {})}
    return sends(_head(status, lines) + payload)


def streams(*events: object, done: bool = True, chunked: bool = True) -> Behaviour:
    """Answers with server-sent events: text as the data, bytes as they are, anything else as JSON."""
    parts = [
        event
        if isinstance(event, bytes)
        else f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
        for event in (*events, *(["[DONE]"] if done else []))
    ]
    if not chunked:
        return closes(_head(200, {"Content-Type": "text/event-stream", "Connection": "close"}) + b"".join(parts))
    head = _head(200, {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"})
    return sends(head, *(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n")


def sends(*pieces: bytes) -> Behaviour:
    """Sends these bytes and keeps the connection."""

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        for piece in pieces:
            await stream.send_all(piece)

    return behave


def closes(data: bytes = b"") -> Behaviour:
    """Sends these bytes and closes the connection."""

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        await stream.send_all(data)
        await stream.aclose()

    return behave


def resets() -> Behaviour:
    """Ends the connection with a reset."""

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()

    return behave


def hangs(data: bytes = b"") -> Behaviour:
    """Sends these bytes, then nothing, until the client has gone."""

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        if data:
            await stream.send_all(data)
        while await stream.receive_some(65536):
            pass

    return behave


def floods(first: bytes) -> Behaviour:
    """Sends these bytes, then chunks without end, until the client has gone."""

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        await stream.send_all(first)
        while True:
            await stream.send_all(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """A behaviour for each request, in the order in which they come."""
    left = iter(behaviours)

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        await next(left)(stream, request)

    return behave


def half(body: object, *, content_type: str = "application/json", status: int = 200) -> bytes:
    """The beginning of an answer that promises more than it holds."""
    payload = json.dumps(body).encode()
    lines = {"Content-Type": content_type, "Content-Length": str(len(payload) + 100)}
    return _head(status, lines) + payload


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} So Be It\r\n{lines}\r\n".encode()


def completion(text: str = "four", **usage: int) -> dict[str, object]:
    """A chat completion."""
    return {
        "id": "c1",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": usage or {"prompt_tokens": 7, "completion_tokens": 1},
    }


def chunk(text: str | None = None, *, finish: str | None = None) -> dict[str, object]:
    """A chunk of a stream."""
    delta = {} if text is None else {"role": "assistant", "content": text}
    return {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

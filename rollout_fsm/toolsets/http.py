"""The HTTP server of an engine's tool servers: one port of the loopback interface, one secret path for each of them.

It knows no tools: what is mounted is an ASGI application. A mount that is closed cuts off what is being answered for
it, and its path is unknown from then on. Hypercorn shields what it sends from cancellation, so a client that does not
read could hold anything up that waits for its answer: whoever is cut off has its socket closed.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from hashlib import sha256
from typing import cast

import trio
from attrs import define, field
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState, LifespanState
from starlette.types import ASGIApp, Receive, Scope, Send

from rollout_fsm.runtime import Route

log = logging.getLogger("rollout_fsm.toolsets")

HOST = "127.0.0.1"
PATH = "mcp"
SECRET_BYTES = 32
KEEP_ALIVE = 75.0
"""Seconds that an idle connection is kept."""


def _config() -> Config:
    config = Config()
    config.accesslog = config.errorlog = None  # it would install handlers
    config.keep_alive_timeout = KEEP_ALIVE
    config.keep_alive_max_requests = 2**31  # it closes a connection without telling the client
    config.include_server_header = False
    return config


@define(eq=False)
class Mount:
    """An application under a path that only those know who were told."""

    _app: ASGIApp = field(repr=False)
    _answering: dict[trio.CancelScope, trio.SocketStream] = field(factory=dict, init=False, repr=False)

    async def answer(self, stream: trio.SocketStream, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request that came over this connection."""
        with trio.CancelScope() as answering:
            self._answering[answering] = stream
            try:
                await self._app(scope, receive, send)
            finally:
                del self._answering[answering]

    def close(self) -> None:
        """Answer nothing any more, what is being answered included."""
        for answering, stream in self._answering.items():
            answering.cancel()
            stream.socket.close()


class ToolHttp:
    """An open server. Made by `open_http`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._config = _config()
        self._context = WorkerContext(None)
        self._mounts: dict[bytes, Mount] = {}
        self._streams: set[trio.SocketStream] = set()

    @contextmanager
    def mounted(self, app: ASGIApp) -> Iterator[Route]:
        """Have an application answer under a path of its own for a block: its URL, which holds a fresh secret."""
        secret, mount = secrets.token_urlsafe(SECRET_BYTES), Mount(app)
        digest = _digest(secret)
        self._mounts[digest] = mount
        try:
            yield Route(f"{self._url}/{secret}/{PATH}", partial(self.connection, only=mount))
        finally:
            del self._mounts[digest]
            mount.close()

    async def connection(self, stream: trio.SocketStream, *, only: Mount | None = None) -> None:
        """Serve one client's connection to its end; `only` what this mount answers, if one is named."""
        app = ASGIWrapper(cast("ASGIFramework", partial(self._answer, stream, only)))
        state, plain = ConnectionState(LifespanState()), cast("trio.SSLStream[trio.SocketStream]", stream)
        self._streams.add(stream)
        try:
            await TCPServer(app, self._config, self._context, state, plain).run()
        except Exception:  # one client's trouble is never another's
            log.warning("a connection of a tool server failed", exc_info=True)
        finally:
            self._streams.discard(stream)

    async def _answer(
        self, stream: trio.SocketStream, only: Mount | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        mount = self._find(scope["path"]) if scope["type"] == "http" else None
        if mount is None or only not in (None, mount):
            await _not_found(scope, send)
            return
        try:
            await mount.answer(stream, scope, receive, send)
        except Exception:  # what a tool raises is an answer; this is a client that hung up, say
            log.debug("a request to a tool server broke off", exc_info=True)

    def _find(self, path: str) -> Mount | None:
        """How long it takes says nothing about a secret: it depends on the digest of what was presented only."""
        secret, _, rest = path.removeprefix("/").partition("/")
        return self._mounts.get(_digest(secret)) if rest.rstrip("/") == PATH else None

    def close(self) -> None:
        """Close every connection."""
        for mount in self._mounts.values():
            mount.close()
        for stream in self._streams:
            stream.socket.close()


@asynccontextmanager
async def open_http() -> AsyncIterator[ToolHttp]:
    """Open the server for a block, on a free port of the loopback interface."""
    listeners = await trio.open_tcp_listeners(0, host=HOST)
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as connections:
        server = ToolHttp(f"http://{HOST}:{port}")
        serve = partial(trio.serve_listeners, server.connection, listeners, handler_nursery=connections)
        async with trio.open_nursery() as accepting:
            accepting.start_soon(serve)
            try:
                yield server
            finally:
                accepting.cancel_scope.cancel()
                server.close()
                connections.cancel_scope.cancel()


async def _not_found(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000, "reason": None})
        return
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": b"there is no tool server here\n", "more_body": False})


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="replace")).digest()

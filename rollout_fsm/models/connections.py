"""How a model client's connections are made and kept: as many as there are calls, each asked one thing at a time.

They are our own, beside the client of tool servers, for what each model call costs: the same exchange over a kept
connection takes 0.14 ms of processor time here and 1.0 ms in `httpx2`.

No proxy and no netrc of the machine is looked at: they would change who is asked, and with which key. A connection that
its exchange has not left complete is closed, whatever the reason, so that the next call never reads an old answer.
"""

import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from functools import cache, lru_cache
from urllib.parse import quote, unquote, urlsplit

import trio
from attrs import define, field, frozen

from rollout_fsm.importing import aside
from rollout_fsm.models.faults import ConnectError, ConnectTimeoutError, UrlError
from rollout_fsm.models.tls import Secured
from rollout_fsm.models.wire import Answer, Connection, Headers, head_of

__all__ = ["Connections"]

CONNECT = 30.0
"""Seconds for a connection to come about, at most."""

IDLE = 4.0
"""Seconds that an unused connection is kept: less than the 5 after which the field's usual server closes it, so that no
call starts on a connection that is just being closed."""

_KEPT = "/?%:@!$&'()*+,;=~"
"""What stays as it is in a path and its query; a percent sign, since they may be quoted already."""

_PORTS: Mapping[str, int] = {"http": 80, "https": 443}


@frozen
class Origin:
    """Who is connected to."""

    scheme: str
    host: str
    port: int


@frozen(kw_only=True)
class Target:
    """What a URL says."""

    origin: Origin
    name: bytes
    """The host as the `Host` header has it."""
    path: bytes
    credentials: bytes | None = field(repr=False)
    """The `Authorization` header that the URL's own user and password make."""


@define(eq=False)
class Connections:
    """The connections of one client. `timeout` is in seconds without a byte, None for no bound."""

    timeout: float | None
    _idle: dict[Origin, deque[tuple[float, Connection]]] = field(factory=dict, init=False)
    """Until when each may be used, and itself; the one that was used last is at the end."""
    _closed: bool = field(default=False, init=False)

    def asked(self, url: str, headers: Headers, content: bytes) -> "Asked":
        """The answer to a POST, for the length of a block: its head read and its body not. `headers` is by lower-case
        name.

        Raises `NetworkError`; for what cannot be asked at all, before the block. Left before the body has been read to
        its end, the block closes the connection.
        """
        target = target_of(url)
        head = head_of(target.path, target.name, headers, target.credentials, len(content))
        return Asked(self, target.origin, head, content)

    async def taken(self, origin: Origin) -> Connection:
        """A connection that nobody else has, until it is given back. Raises `NetworkError`."""
        return await self._unused(origin) or await self._connected(origin)

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """Its exchange is over; it is kept for another one, or closed."""
        if connection.reusable and not self._closed:
            self._idle.setdefault(origin, deque()).append((trio.current_time() + IDLE, connection))
        else:
            connection.close()

    def close(self) -> None:
        """Close them all; one that is in use is closed when its exchange is over."""
        self._closed = True
        for waiting in self._idle.values():
            while waiting:
                waiting.pop()[1].close()

    async def _unused(self, origin: Origin) -> Connection | None:
        """The connection that was used last, if there is one; those that have waited too long are closed."""
        waiting = self._idle.get(origin)
        while waiting:
            until, connection = waiting[0]
            if until > trio.current_time():
                _, connection = waiting.pop()
                if not await connection.ended():
                    return connection
            else:
                waiting.popleft()
            connection.close()
        return None

    async def _connected(self, origin: Origin) -> Connection:
        """A new connection."""
        try:
            trusting = await aside(_tls) if origin.scheme == "https" else None
            with trio.fail_after(CONNECT if self.timeout is None else min(CONNECT, self.timeout)):
                stream = await trio.open_tcp_stream(origin.host, origin.port)
                if trusting is None:
                    return Connection(stream, stream.socket, self.timeout)
                secured = Secured(stream, trusting, origin.host)
                try:
                    await secured.do_handshake()
                except BaseException:
                    stream.socket.close()
                    raise
                return Connection(secured, stream.socket, self.timeout)
        except trio.TooSlowError:
            raise ConnectTimeoutError from None
        except (OSError, trio.BrokenResourceError) as error:
            raise ConnectError(str(error)) from error


@define(eq=False)
class Asked:
    """One request and its answer, as an async context manager."""

    _of: Connections
    _origin: Origin
    _head: bytes = field(repr=False)
    _content: bytes = field(repr=False)
    _connection: Connection = field(init=False, repr=False)

    async def __aenter__(self) -> Answer:
        self._connection = await self._of.taken(self._origin)
        try:
            return await self._connection.ask(self._head, self._content)
        except BaseException:
            self._of.give_back(self._origin, self._connection)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._of.give_back(self._origin, self._connection)


@lru_cache(maxsize=64)
def target_of(url: str) -> Target:
    """What is asked where. Raises `UrlError`."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode("ascii")
        port = parts.port
    except ValueError as error:
        raise UrlError(str(error)) from None
    if parts.scheme not in _PORTS or not host:
        raise UrlError("the URL names no host" if parts.scheme in _PORTS else f"{parts.scheme}:// is not spoken")
    path = quote(f"{parts.path or '/'}?{parts.query}".removesuffix("?"), safe=_KEPT)
    bracketed = f"[{host}]" if ":" in host else host
    return Target(
        origin=Origin(parts.scheme, host, _PORTS[parts.scheme] if port is None else port),
        name=(bracketed if port in (None, _PORTS[parts.scheme]) else f"{bracketed}:{port}").encode(),
        path=path.encode(),
        credentials=_basic(parts.username, parts.password),
    )


def _basic(user: str | None, password: str | None) -> bytes | None:
    if not user and not password:
        return None
    return b"Basic " + b64encode(f"{unquote(user or '')}:{unquote(password or '')}".encode())


@cache
def _tls() -> ssl.SSLContext:
    """Made once, where it is needed and not in the event loop: it takes a fifth of a second.

    `httpx2` knows where each system keeps the certificates that it trusts, which `ssl` alone does not; and no variable
    of the environment changes who is trusted.
    """
    import httpx2

    context = httpx2.create_ssl_context(trust_env=False)
    context.set_alpn_protocols(["http/1.1"])
    return context

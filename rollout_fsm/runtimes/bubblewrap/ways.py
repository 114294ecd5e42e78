"""The ways out of a box, whose own network is empty: sockets that listen inside of it and are served from outside.

Each leads to one of the framework's own routes, or to the proxy that holds programs to their network policy. The first
process of the box makes the socket and passes it out, so that no connection of the box touches the host's network but
through the engine's hands. The invariant: what the box reaches is what is in `_open`.
"""

import errno
import logging
import socket
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

import trio
from attrs import define, field, frozen

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import Address, Host, Policies, Refusal, parse_host
from rollout_fsm.runtime import Answer, Route
from rollout_fsm.runtimes.bubblewrap.control import Control
from rollout_fsm.runtimes.bubblewrap.tasks import Tasks
from rollout_fsm.runtimes.proxy import NetworkProxy
from rollout_fsm.runtimes.proxy.relay import tunnel

Place = tuple[str, int]
"""An address of the box's own loopback interface, and a port."""

PROXY: Place = ("127.0.0.1", 3128)
VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), f"http://{PROXY[0]}:{PROXY[1]}"),
    "no_proxy": "localhost,127.0.0.1,::1",
}
"""What tells programs of the proxy; most read them in small letters, some in capitals."""
AT_ONCE = 128
"""How many connections one way serves at once; further ones wait."""
PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}

log = logging.getLogger("rollout_fsm.network")


@frozen
class _Execution(Policies):
    """The policies of the execution, and the routes that are no loopback ones: these stay open, too (L5)."""

    routes: frozenset[tuple[Host, int]] = frozenset()

    def refusal(
        self, host: Host, port: int, addresses: Collection[Address] = (), own: Collection[Address] = ()
    ) -> Refusal | None:
        """Why a host may not be reached, or None."""
        if (host, port) in self.routes:
            return None
        return Policies.refusal(self, host, port, addresses, own)


@define(eq=False, repr=False)
class _Way:
    """A socket that listens in the box, and who answers on it."""

    listener: trio.SocketListener
    answer: Answer
    _scope: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _places: trio.Semaphore = field(init=False, factory=lambda: trio.Semaphore(AT_ONCE))

    def close(self) -> None:
        """Listen no more, at once, and end the connections."""
        self._scope.cancel()
        self.listener.socket.close()

    async def serve(self) -> None:
        """Accept connections until it is closed."""
        with self._scope:
            async with self.listener, trio.open_nursery() as nursery:
                while True:
                    await self._places.acquire()
                    nursery.start_soon(self._one, await self.listener.accept())

    async def _one(self, stream: trio.SocketStream) -> None:
        try:
            async with stream:
                await self.answer(stream)
        except Exception:
            log.warning("a connection of a box failed", exc_info=True)
        finally:
            self._places.release()


@define(eq=False, repr=False)
class Ways:
    """The ways of one box. `runtime` is its name."""

    runtime: str
    _control: Control
    _tasks: Tasks
    _proxy: NetworkProxy = field(init=False, factory=lambda: NetworkProxy(policies=Policies()))
    _open: dict[Place, _Way] = field(init=False, factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """What programs are told of the proxy, where there is one."""
        if PROXY not in self._open:
            return {}
        return {**VARIABLES, **{name.upper(): value for name, value in VARIABLES.items()}}

    async def for_setup(self, policies: Policies) -> None:
        """Open the way to the proxy, where the policies allow anything."""
        self._proxy.policies = policies
        await self._have({} if policies.forbids_all else {PROXY: self._proxy.answer})

    async def for_execution(self, policies: Policies, routes: Sequence[Route]) -> None:
        """Leave what the policies allow, and the routes. What setup reached and they do not is cut.

        Raises `SandboxError` for a route that cannot be opened.
        """
        served: dict[Place, Answer] = {}
        elsewhere: set[tuple[Host, int]] = set()
        for route in routes:
            host, port = self._target(route)
            place = _place(host, port)
            if place is None:
                elsewhere.add((parse_host(host), port))
                continue
            dialled = partial(_dialled, host, port)
            answer = route.answer or dialled
            # Two that share a port are told apart by their paths, which only who listens there knows.
            served[place] = answer if served.get(place, answer) == answer else dialled
        if PROXY in served:
            raise SandboxError(f"runtime {self.runtime} has its proxy on the port of a route, {PROXY[1]}: change that")
        self._proxy.policies = _Execution(policies.each, frozenset(elsewhere))
        if elsewhere or not policies.forbids_all:
            served[PROXY] = self._proxy.answer
        await self._have(served)

    def _target(self, route: Route) -> Place:
        """Host and port of a route, whose path may be a secret."""
        try:
            url = urlsplit(route)
            host, port = url.hostname, url.port or PORTS.get(url.scheme)
            if host is not None and port is not None:
                return host, port
        except ValueError as error:
            raise SandboxError(f"runtime {self.runtime} has a route that is no URL: {error}") from None
        raise SandboxError(
            f"runtime {self.runtime} has a route that names no host, or no port of its own and none of "
            f"{', '.join(PORTS)} as its scheme, but {url.scheme!r}"
        )

    async def _have(self, wanted: Mapping[Place, Answer]) -> None:
        """Close the ways that are not wanted, or lead elsewhere, and open those that are missing."""
        for place, way in list(self._open.items()):
            if wanted.get(place) != way.answer:
                way.close()
                del self._open[place]
        for place, answer in wanted.items():
            if place not in self._open:
                way = _Way(await self._listener(place), answer)
                self._tasks.start_soon(way.serve)
                self._open[place] = way

    async def _listener(self, place: Place) -> trio.SocketListener:
        """A socket that listens in the box."""
        host, port = place
        cannot = f"runtime {self.runtime} cannot open {host}:{port} in its box"
        try:
            found = (await self._control.ask("listen", host, port)).descriptor
            if found is None:
                raise SandboxError(f"{cannot}: it got no socket")
            return trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=found)))
        except (OSError, ValueError) as error:
            known = {
                errno.EADDRINUSE: "a program of the setup listens there; have it take another port",
                errno.EACCES: "a route needs a port of 1024 or more",
            }
            raise SandboxError(f"{cannot}: {known.get(getattr(error, 'errno', 0), error)}") from error


def _place(host: str, port: int) -> Place | None:
    """Where in the box a route of the loopback interface is; None for any other."""
    if host == "localhost":
        host = "127.0.0.1"
    try:
        return (host, port) if ip_address(host).is_loopback else None
    except ValueError:  # a name
        return None


async def _dialled(host: str, port: int, stream: trio.SocketStream) -> None:
    """Carry a connection of the box to where the route's URL leads on the engine's side."""
    try:
        origin = await trio.open_tcp_stream(host, port)
    except OSError as error:
        log.info("a route of a box leads nowhere: %s", error)
        return
    async with origin:
        await tunnel(stream, origin, b"", lambda: None)

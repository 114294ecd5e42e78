"""The framework's own routes into a box whose network is taken away: where they lead, and who answers there (L5).

A route of the loopback interface keeps its address and port in the box, whose loopback is its own. A route to another
machine goes through the proxy, whatever the policies.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

import trio
from attrs import frozen

from rollout_fsm.errors import SandboxError
from rollout_fsm.network import Address, Host, Policies, Refusal, parse_host
from rollout_fsm.runtime import Answer, Route
from rollout_fsm.runtimes.proxy.relay import tunnel

Place: TypeAlias = tuple[str, int]
"""An address of a box's loopback interface, and a port."""

PROXY: Place = ("127.0.0.1", 3128)
"""Where in a box the proxy is."""
VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), f"http://{PROXY[0]}:{PROXY[1]}"),
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), f"http://{PROXY[0]}:{PROXY[1]}"),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
}
"""What tells programs of the proxy."""
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@frozen
class Execution(Policies):
    """The policies of an execution, and the far routes, which they do not concern."""

    routes: frozenset[tuple[Host, int]] = frozenset()

    def refusal(
        self, host: Host, port: int, addresses: Collection[Address] = (), own: Collection[Address] = ()
    ) -> Refusal | None:
        """Why a host may not be reached, or None."""
        return None if (host, port) in self.routes else Policies.refusal(self, host, port, addresses, own)


def lay(runtime: str, routes: Sequence[Route]) -> tuple[dict[Place, Answer], frozenset[tuple[Host, int]]]:
    """Who answers at which places of the box, and the far routes. Raises `SandboxError` for what is no route."""
    near: dict[Place, Answer] = {}
    far: set[tuple[Host, int]] = set()
    for route in routes:
        try:
            host, port = _target(route)
            if (address := _loopback(host)) is None:
                far.add((parse_host(host), port))
                continue
        except ValueError as error:
            raise SandboxError(f"runtime {runtime} has a route that is no URL with a host: {error}") from None
        if (address, port) == PROXY:
            raise SandboxError(f"runtime {runtime} has a route on port {port}, where its proxy is: take another port")
        # Two that share a port are told apart by their paths, which only who listens there knows.
        dialled = partial(dial, host, port)
        answer = route.answer or dialled
        near[address, port] = answer if near.get((address, port), answer) == answer else dialled
    return near, frozenset(far)


async def dial(host: str, port: int, stream: trio.SocketStream) -> None:
    """Carry a connection of a box to where a route leads on this machine. One that leads nowhere is closed."""
    try:
        origin = await trio.open_tcp_stream(host, port)
    except OSError:
        return
    async with origin:
        await tunnel(stream, origin, b"", lambda: None)


def _target(route: Route) -> tuple[str, int]:
    """Host and port of a route. Raises `ValueError` without its path, which may be a secret."""
    url = urlsplit(route)
    if not url.hostname or url.scheme not in _PORTS:
        raise ValueError(f"its scheme is {url.scheme!r}, and its host {url.hostname!r}")
    return url.hostname, url.port or _PORTS[url.scheme]


def _loopback(host: str) -> str | None:
    """The loopback address that a host is; None for another one, or a name."""
    address = "127.0.0.1" if host == "localhost" else host
    try:
        return address if ip_address(address).is_loopback else None
    except ValueError:
        return None

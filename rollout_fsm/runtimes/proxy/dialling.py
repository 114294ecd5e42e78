"""How the proxy finds and reaches a host, unless it is given other ways."""

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from ipaddress import ip_address
from typing import TypeAlias

import trio

from rollout_fsm.network import Address
from rollout_fsm.network.addresses import canonical
from rollout_fsm.runtimes.threads import name_limiter

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Looks a name up for a port: its addresses, the one to try first at the front. Raises `OSError` where there is
none."""
Connect: TypeAlias = Callable[[Address, int], Awaitable[trio.SocketStream]]
"""Connects to an address and port, and looks nothing up. Raises `OSError`."""


async def look_up(name: str, port: int) -> list[Address]:
    """The addresses of a name, as this machine resolves it."""
    ask = partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
    found = await trio.to_thread.run_sync(ask, limiter=name_limiter(), abandon_on_cancel=True)
    return list(dict.fromkeys(canonical(ip_address(sockaddr[0])) for *_, sockaddr in found))


async def dial(address: Address, port: int) -> trio.SocketStream:
    """A connection to an address."""
    return await trio.open_tcp_stream(str(address), port)


def is_of_this_machine(address: Address) -> bool:
    """Whether the address is one of this machine's own, whatever network it is of: what is sent there has it as its
    sender. Sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            sender: str = probe.getsockname()[0]
    except OSError:  # there is no way to it
        return False
    return ip_address(sender) == address

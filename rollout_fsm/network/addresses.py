"""Which addresses are anybody's, and which belong to a machine, a private network or a cloud's own services.

The lists are written out: the standard library's `is_global` differs between versions, and says yes to multicast.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_NOT_PUBLIC_4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this machine: Linux connects 0.0.0.0 to loopback
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' own, and metadata services
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's services for the machine, at a public address
        "169.254.0.0/16",  # link-local, metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments, metadata services
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
"""What of IPv6 is given out at all; loopback, private, link-local and multicast addresses are elsewhere."""
_NOT_PUBLIC_6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
MAPPED = IPv6Network("::ffff:0:0/96")
"""IPv4 addresses as programs that know IPv6 only write them."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""Translated to the IPv4 address in its last 32 bits, so as public as that."""


def canonical(address: Address) -> Address:
    """The address that is connected to: an IPv4 address that is mapped into IPv6 is that IPv4 address."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))  # without the name of an interface
    return address


def faces(address: Address) -> tuple[Address, ...]:
    """The address, and the one that a translation on the way makes of it."""
    if isinstance(address, IPv6Address):
        inner = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address.sixtofour
        if inner is not None:
            return (address, inner)
    return (address,)


def is_public(address: Address) -> bool:
    """Whether an address is one of the Internet's: not of a machine, a private network, a cloud's own services or a
    group of receivers. A translated address is one if the address that it stands for is."""
    return all(_is_public(face) for face in faces(canonical(address)))


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not within(address, _NOT_PUBLIC_4)
    return address in _NAT64 or (address in _PUBLIC_6 and not within(address, _NOT_PUBLIC_6))


def within(address: Address, networks: Iterable[Network]) -> bool:
    """Whether an address is in one of the blocks."""
    return any(address in network for network in networks)


def block(address: Address) -> Network:
    """The block of that one address."""
    return ip_network(address)

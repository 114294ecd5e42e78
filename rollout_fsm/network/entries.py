"""One entry of a network policy: what it names, on which port."""

from functools import lru_cache
from ipaddress import IPv6Network, ip_network

from attrs import frozen

from rollout_fsm.network.addresses import MAPPED, Address, Network, block
from rollout_fsm.network.hosts import Host, parse_host, parse_port

ANY = "*"
BELOW = "*."
"""What a pattern begins with that is for all names below another, and not for that name itself."""


@frozen
class Entry:
    """What an entry says. `what` is a block of addresses, a name, `*.` and a name, or `*`; no `port` is any port."""

    what: str | Network
    port: int | None

    def names(self, host: Host, port: int) -> bool:
        """Whether it names the host as the client wrote it."""
        if self.port not in (None, port):
            return False
        if isinstance(self.what, str):
            return self.what == ANY or (isinstance(host, str) and self._names(self.what, host))
        return not isinstance(host, str) and host in self.what

    def holds(self, address: Address, port: int) -> bool:
        """Whether it names the address, as an address or a block."""
        return self.port in (None, port) and not isinstance(self.what, str) and address in self.what

    @staticmethod
    def _names(what: str, host: str) -> bool:
        return host.endswith(what[1:]) if what.startswith(BELOW) else host == what


@lru_cache(maxsize=4096)
def parse_entry(text: str) -> Entry:
    """The entry that a text is. Raises `ValueError`, saying what is wrong with it and what to write."""
    host, port = _split(text)
    if "/" in host:
        return Entry(_block(host), port)
    if host == ANY:
        return Entry(ANY, port)
    if "*" in host.removeprefix(BELOW):
        raise ValueError('a pattern is "*" or begins with "*.", and has no other asterisk')
    below = host.startswith(BELOW)
    parsed = parse_host(host.removeprefix(BELOW))
    if isinstance(parsed, str):
        return Entry(BELOW + parsed if below else parsed, port)
    if below:
        raise ValueError("there are no names below an address; name a block of addresses, such as 192.0.2.0/24")
    if ":" not in host and host != str(parsed):
        raise ValueError(f"write the address as {str(parsed)!r}")
    return Entry(block(parsed), port)


def _split(text: str) -> tuple[str, int | None]:
    """The host and the port of an entry."""
    if "://" in text:
        raise ValueError('it is a URL; name the host alone, such as "example.org" or "example.org:443"')
    if not text or any(character.isspace() for character in text):
        raise ValueError("it is empty or has a blank in it; an entry is one host")
    if text.startswith("["):  # an IPv6 address has a port only behind brackets
        inner, bracket, tail = text.rpartition("]")
        host, colon, port = inner + bracket, tail[:1], tail[1:]
        if not bracket or colon not in ("", ":"):
            raise ValueError('brackets are around an IPv6 address, such as "[2001:db8::1]:443"')
    elif text.count(":") > 1:
        return text, None
    else:
        host, colon, port = text.partition(":")
    return host, parse_port(port) if colon else None


def _block(text: str) -> Network:
    try:
        found = ip_network(text.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise ValueError(f"it is no block of addresses, such as 10.0.0.0/8: {error}") from None
    if isinstance(found, IPv6Network) and found.subnet_of(MAPPED):
        raise ValueError("write the block in IPv4, which is what its addresses are connected to")
    return found

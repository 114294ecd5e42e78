"""One spelling for each host: what a client or a policy wrote, as a name in lower case or as an address.

Whatever a resolver takes for an address is one here too: `127.1`, `0x7f.1`, `2130706433`, an IPv4 address in full-width
digits or mapped into IPv6. So no spelling is a name that no policy knows.
"""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from rollout_fsm.network.addresses import Address, canonical

Host: TypeAlias = str | Address
"""A name in ASCII and lower case, without a dot at its end; or an address."""

LONGEST = 253
"""Characters of the longest name."""
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_PORT = re.compile(r"[0-9]{1,5}")


def parse_host(text: str) -> Host:
    """The host that a text names. An IPv6 address may be in brackets. Raises `ValueError`, saying why, for none."""
    if len(text) > LONGEST + 2:
        raise ValueError(f"a host's name has at most {LONGEST} characters, not {len(text)}")
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    if ":" in text:
        return _ipv6(text)
    name = _ascii(text).lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(text, labels)
    if not all(_LABEL.fullmatch(label) for label in labels) or len(name) > LONGEST:
        raise ValueError(f"{text!r} is no host: neither a name nor an address")
    return name


def parse_port(text: str) -> int:
    """The port that a text names, 1 to 65535. Raises `ValueError` for none."""
    if _PORT.fullmatch(text) and 0 < int(text) < 2**16:
        return int(text)
    raise ValueError(f"{text!r} is no port: a port is a number from 1 to 65535")


def endpoint(host: Host, port: int) -> str:
    """Host and port as URLs and policies have them: `example.org:443`, `[::1]:80`."""
    return f"[{host}]:{port}" if isinstance(host, IPv6Address) else f"{host}:{port}"


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"{text!r} is no host: {error}") from None


def _ipv6(text: str) -> Address:
    if "%" in text:
        raise ValueError(f"{text!r} names an interface; an address is given without one")
    try:
        return canonical(IPv6Address(text))
    except ValueError:
        raise ValueError(f"{text!r} is no IPv6 address") from None


def _ipv4(text: str, labels: list[str]) -> IPv4Address:
    """An IPv4 address as resolvers read it: one to four numbers, octal and hexadecimal ones too, the last one filling
    the bytes that are left."""
    wrong = ValueError(f"{text!r} is no host: it ends in a number and is no IPv4 address")
    if len(labels) > 4 or not all(_NUMBER.fullmatch(label) for label in labels):
        raise wrong
    try:
        *first, last = [_number(label) for label in labels]
    except ValueError:  # an eight in an octal number
        raise wrong from None
    if any(number > 0xFF for number in first) or last >= 256 ** (4 - len(first)):
        raise wrong
    return IPv4Address(int.from_bytes(bytes(first).ljust(4, b"\0")) + last)


def _number(label: str) -> int:
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") else 10)

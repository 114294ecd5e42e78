"""What programs may reach over the network. A policy says it; a runtime holds programs to it."""

from collections.abc import Iterable

from attrs import field, frozen


def _entries(given: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)


def _some(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


@frozen
class NetworkPolicy:
    """`allow`: what may be reached; None for everything public, empty for nothing. `block`: what may not, whatever
    `allow` says."""

    allow: tuple[str, ...] | None = field(default=None, converter=_entries)
    block: tuple[str, ...] = field(default=(), converter=_some)

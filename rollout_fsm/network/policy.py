"""The policy: which hosts are allowed and which are blocked, alone and several together."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from attrs import Attribute, field, frozen

from rollout_fsm.network.addresses import Address, canonical, faces, is_public
from rollout_fsm.network.entries import ANY, Entry, parse_entry
from rollout_fsm.network.hosts import Host, endpoint


@frozen
class Refusal:
    """Why something may not be reached. `why` says which entry is missing or in the way."""

    host: str
    port: int
    why: str
    address: Address | None = None
    """Which address of the host's is at fault; not told to the program, which might be asking for just that."""

    def __str__(self) -> str:
        address = "" if self.address is None else f" [{self.address}]"
        return f"{self.why}{address}"


def _some(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError(f"a network policy has lists of hosts, not one text: write [{given!r}]")
    return tuple(given)


def _all_or_some(given: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if given is None else _some(given)


def _check(_: object, attribute: "Attribute[Any]", value: tuple[str, ...] | None) -> None:
    for place, entry in enumerate(value or ()):
        where = f"{attribute.name}[{place}] of the network policy, {entry!r}"
        if not isinstance(entry, str):
            raise TypeError(f"{where}: an entry is text, not {type(entry).__name__}")
        try:
            parse_entry(entry)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


@frozen
class NetworkPolicy:
    """What programs may reach.

    `allow`: the hosts that may be reached; None for everything public, empty for nothing. `block`: hosts that may not,
    whatever `allow` says. An entry is one of these, each with an optional port (`example.org:443`, any port without):

    - a name: `example.org`, and nothing below it
    - `*.example.org`: every name below example.org, at any depth, and not example.org itself
    - `*`: every host, so `*:443` is everything public on one port
    - an address or a block: `192.0.2.7`, `[2001:db8::1]:443`, `10.0.0.0/8`

    A name admits its public addresses only. What is not public (loopback, private networks, metadata services) is
    reached if its address or a block with it is in `allow`, and by a name only if that is in `allow`, too: an address
    admits no name that leads to it, since a name that is looked up already tells somebody something. A name that leads
    to several addresses needs all of them permitted. A blocked name blocks that name, not its addresses under another.

    Raises `ValueError` and `TypeError` naming the entry.
    """

    allow: tuple[str, ...] | None = field(default=None, converter=_all_or_some, validator=_check)
    block: tuple[str, ...] = field(default=(), converter=_some, validator=_check)

    @property
    def restricts(self) -> bool:
        """Whether it keeps anything public away."""
        return bool(self.block) or (self.allow is not None and ANY not in self.allow)

    @property
    def forbids_all(self) -> bool:
        """Whether it lets nothing at all be reached."""
        return self.allow == () or ANY in self.block

    def refusal(
        self, host: Host, port: int, addresses: Collection[Address] = (), own: Collection[Address] = ()
    ) -> Refusal | None:
        """Why a host may not be reached on a port, or None.

        Asked with the host alone before its name is looked up, and again with the `addresses` that it led to. Those of
        them that are `own` to the engine's machine count as not public.
        """
        target, name = endpoint(host, port), str(host)
        if entry := self._blocks(host, port):
            return Refusal(name, port, f"{target} is blocked by the network policy: its block has {entry!r}")
        if self.allow is not None and not any(entry.names(host, port) for entry in _entries(self.allow)):
            why = f"{target} is not allowed by the network policy: its allow has no entry such as {target!r}"
            return Refusal(name, port, why)
        if not isinstance(host, str):
            addresses = (host, *addresses)
        for address in map(canonical, addresses):
            if entry := self._blocks(address, port):
                why = f"an address of {target} is blocked by the network policy: its block has {entry!r}"
                return Refusal(name, port, why, address)
            if not self._admits(address, port, own):
                why = (
                    f"{target} is at an address that is not public: the allow of the network policy has no entry for "
                    f"that very address"
                )
                return Refusal(name, port, why, address)
        return None

    def _blocks(self, host: Host, port: int) -> str | None:
        """The entry that blocks a name or an address."""
        forms: tuple[Host, ...] = (host,) if isinstance(host, str) else faces(host)
        blocking = zip(self.block, _entries(self.block), strict=True)
        return next((text for text, entry in blocking if any(entry.names(form, port) for form in forms)), None)

    def _admits(self, address: Address, port: int, own: Collection[Address]) -> bool:
        """Whether every form of an address that is not public is named itself."""
        return all(
            (is_public(form) and form not in own)
            or any(entry.holds(form, port) for entry in _entries(self.allow or ()))
            for form in faces(address)
        )


def _entries(texts: Iterable[str]) -> Iterator[Entry]:
    return map(parse_entry, texts)


@frozen
class Policies:
    """Several policies, each of which has to permit what is reached. None at all permit what is public."""

    each: tuple[NetworkPolicy, ...] = ()

    def joined(self, policy: NetworkPolicy) -> "Policies":
        """These and one more, if it is not among them."""
        return self if policy in self.each else Policies((*self.each, policy))

    @property
    def restricts(self) -> bool:
        """Whether they keep anything public away."""
        return any(policy.restricts for policy in self.each)

    @property
    def forbids_all(self) -> bool:
        """Whether one of them lets nothing at all be reached. Lists that have nothing in common are not looked for."""
        return any(policy.forbids_all for policy in self.each)

    def refusal(
        self, host: Host, port: int, addresses: Collection[Address] = (), own: Collection[Address] = ()
    ) -> Refusal | None:
        """Why a host may not be reached, or None; as `NetworkPolicy.refusal`."""
        asked = (policy.refusal(host, port, addresses, own) for policy in self.each or (NetworkPolicy(),))
        return next((refusal for refusal in asked if refusal is not None), None)


def is_policy(_record: object, attribute: "Attribute[Any]", value: Any) -> None:
    """A validator: raises `TypeError`, in one line, for what is no policy."""
    if not isinstance(value, NetworkPolicy):
        raise TypeError(
            f"{attribute.name} is a NetworkPolicy, not {value!r:.80}; write {attribute.name}=NetworkPolicy(allow=[…])"
        )

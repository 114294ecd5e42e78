"""The proxy of one box: its policies, its bounds, what it let through and what it refused.

A name is looked up once, the policies are asked about the name and every address of it, and an address that they were
asked about is the one that is connected to: a name that answers otherwise the next time changes nothing. A redirect is
an answer like any other; the client that follows it asks again. What goes through a tunnel is not looked at: a name
stands for whatever listens at its address, and a TLS server name inside is not checked against it.
"""

import logging
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import h11
import trio
from attrs import define, field, frozen, validators

from rollout_fsm.network import Address, Host, Policies, Refusal
from rollout_fsm.runtimes.proxy.dialling import Connect, Resolve, dial, is_of_this_machine, look_up
from rollout_fsm.runtimes.proxy.request import Rejected
from rollout_fsm.runtimes.proxy.speaking import speaker
from rollout_fsm.runtimes.proxy.visit import Visit

log = logging.getLogger("rollout_fsm.network")

REMEMBERED = 100
"""How many refusals are kept, the last ones."""
LOOK_UPS = 4
"""How many names one box looks up at once."""


@frozen(kw_only=True, eq=False)
class _Passage:
    """What is being reached, from the decision that it may be until it is left."""

    host: Host
    port: int
    addresses: Sequence[Address]
    own: Collection[Address]
    scope: trio.CancelScope = field(factory=trio.CancelScope)


@define(eq=False, repr=False, kw_only=True)
class NetworkProxy:
    """An HTTP proxy that connects (CONNECT) to what all policies allow, and forwards plain http requests there.

    `policies` may be exchanged at any time; what the new ones do not permit is cut off. `own`: addresses that count as
    the engine's machine's, beside those that the machine has itself: the one that the outside knows it by, say.
    `head_timeout`, `connect_timeout` (for a look-up, and again for the attempts to connect) and `idle_timeout` (without
    a byte either way) are in seconds. `max_connections` at once; further ones are answered 503.
    """

    _policies: Policies = field(alias="policies")
    own: Collection[Address] = ()
    head_timeout: float = field(default=10.0, validator=validators.gt(0))
    connect_timeout: float = field(default=30.0, validator=validators.gt(0))
    idle_timeout: float = field(default=600.0, validator=validators.gt(0))
    max_connections: int = field(default=256, validator=validators.ge(1))
    resolve: Resolve = look_up
    connect: Connect = dial
    refusals: deque[Refusal] = field(init=False, factory=lambda: deque(maxlen=REMEMBERED))
    """What was refused last, the oldest first."""
    _connections: int = field(init=False, default=0)
    _passages: list[_Passage] = field(init=False, factory=list)
    _look_ups: trio.CapacityLimiter = field(init=False, factory=lambda: trio.CapacityLimiter(LOOK_UPS))

    @property
    def policies(self) -> Policies:
        """All of which have to permit what is reached."""
        return self._policies

    @policies.setter
    def policies(self, policies: Policies) -> None:
        self._policies = policies
        for passage in self._passages:
            if refusal := policies.refusal(passage.host, passage.port, passage.addresses, passage.own):
                self._note(refusal)
                passage.scope.cancel()

    async def answer(self, stream: trio.SocketStream) -> None:
        """Serve one connection of a client to its end; the caller closes it. Raises nothing for what the client or
        anything that it reaches does."""
        self._connections += 1
        try:
            await Visit(self, speaker(h11.SERVER, stream)).run(crowded=self._connections > self.max_connections)
        finally:
            self._connections -= 1

    async def find(self, host: Host, port: int) -> Sequence[Address]:
        """The addresses of a host that may be looked up. Raises `Rejected`."""
        if refusal := self._policies.refusal(host, port):
            raise self._rejected(refusal)
        if not isinstance(host, str):
            return (host,)
        with trio.move_on_after(self.connect_timeout):
            try:
                async with self._look_ups:
                    addresses = await self.resolve(host, port)
            except OSError as error:
                raise Rejected(502, f"the name {host} could not be looked up: {error}") from None
            if not addresses:
                raise Rejected(502, f"the name {host} has no address")
            return addresses
        raise Rejected(504, f"the name {host} was looked up without an answer for {self.connect_timeout} s")

    @contextmanager
    def passing(self, host: Host, port: int, addresses: Sequence[Address]) -> Iterator[None]:
        """While what is at these addresses is reached. Raises `Rejected` at once, or as soon as it may not be any
        more."""
        own = [address for address in addresses if address in self.own or is_of_this_machine(address)]
        if refusal := self._policies.refusal(host, port, addresses, own):
            raise self._rejected(refusal)
        passage = _Passage(host=host, port=port, addresses=addresses, own=own)
        self._passages.append(passage)
        try:
            with passage.scope:
                yield
        finally:
            self._passages.remove(passage)
        if passage.scope.cancelled_caught:
            raise Rejected(403, f"{host} is not allowed any more: the network policy was exchanged")

    async def reach(self, addresses: Sequence[Address], port: int) -> trio.SocketStream:
        """A connection to the first address that answers; each has a fair share of the time. Raises `Rejected`."""
        failures = []
        ends = trio.current_time() + self.connect_timeout
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            now = trio.current_time()
            with trio.move_on_at(now + (ends - now) / left):
                try:
                    return await self.connect(address, port)
                except OSError as error:
                    failures.append(str(error))
        if failures:
            raise Rejected(502, f"no connection: {'; '.join(failures)}")
        raise Rejected(504, f"nothing answered within {self.connect_timeout} s")

    def _rejected(self, refusal: Refusal) -> Rejected:
        self._note(refusal)
        return Rejected(403, refusal.why)

    def _note(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)
        log.info("refused: %s", refusal)

    def __repr__(self) -> str:
        return f"<NetworkProxy {self._connections} connections, {len(self.refusals)} refusals remembered>"

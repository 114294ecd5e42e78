"""The lifetime of a box: it is started once, and stopped any number of times until nothing of it is left.

What starting and stopping are is the runtime's; here is only that they come in order. The invariant: one end is tried
at a time, and none after one that left nothing.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from attrs import define, field

from rollout_fsm.errors import SandboxError

T = TypeVar("T")


@define(eq=False, repr=False)
class Lifetime:
    """Of the runtime of this name."""

    name: str
    stopped: bool = field(init=False, default=False)
    """Whether its stop was asked for (L3)."""
    _gone: bool = field(init=False, default=False)
    """Whether nothing of it is left."""
    _ending: trio.Lock = field(init=False, factory=trio.Lock)

    def require_new(self, *, begun: bool) -> None:
        """Raises `SandboxError` where its start has begun before, or it was stopped."""
        if self.stopped or begun:
            state = "was stopped" if self.stopped else "is started already"
            raise SandboxError(f"runtime {self.name} {state}: a runtime is started once; make a new one")

    def require(self, made: T | None, what: str) -> T:
        """What its start made. Raises `SandboxError` before that, and after its stop; `what` says what is gone then."""
        if self.stopped:
            raise SandboxError(f"runtime {self.name} was stopped: it has no {what} any more")
        if made is None:
            raise SandboxError(f"runtime {self.name} was not started: call start() first")
        return made

    def state(self, place: object) -> str:
        """For a `repr`: where it is, which is None before its start."""
        return "stopped" if self.stopped else "not started" if place is None else f"in {place}"

    async def end(self, tear_down: Callable[[], Awaitable[None]]) -> None:
        """Stop it, shielded. What `tear_down` raises passes on, and it is tried again by the next who asks (L8)."""
        self.stopped = True
        with trio.CancelScope(shield=True):
            async with self._ending:
                if not self._gone:
                    await tear_down()
                    self._gone = True

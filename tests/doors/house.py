"""A house with many doors: one rollout whose every outside party does what its contract asks, but at one door.

Whatever the engine calls of a party goes through `House.knock` (awaited) or `House.look` (called, or only read), which
note that the door was gone through. At the broken door the fault acts instead. Nothing here knows what the engine makes
of it; the parties themselves are in `parties`.
"""

import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio
from attrs import define, field

from rollout_fsm import Rollout, RolloutTimeouts, Trace

BOUNDS = RolloutTimeouts(boot=5, setup=7, agent=11, finalize=13, scoring=17, hook=3, drain=1, close=23, release=29)
"""All different, so that the time that passed tells which one it was."""
BEYOND = 2.0
"""Seconds that what ignores its bound goes on after it."""
SCENES = ("plain", "borrowed", "kept", "the agent fails", "the program fails")
"""What else is so: the runtime is borrowed; the run has a folder; the harness raises after its turn; its program exits
with 3."""

PROPER = object()
"""A fault returns it for what the contract asks for."""
GO_ON = object()
"""A fault returns it to do what the party does otherwise."""


class Breaks(Protocol):
    """What a fault does, at either kind of door."""

    def awaited(self, house: "House") -> Awaitable[object]:
        """At a door that is awaited; what it raises is the fault."""
        ...

    def called(self, house: "House") -> object:
        """At a door that is called or read, and as the call of one that should have been awaited."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether calling an awaited door gives something to await."""
        ...


@define(eq=False, kw_only=True)
class House:
    """One rollout's world, and what was done to it."""

    door: str = ""
    """The one that is broken."""
    fault: Breaks | None = None
    scene: str = "plain"
    seconds: float = 0.0
    """The bound of the broken door."""
    began: list[str] = field(factory=list)
    """The doors that were gone through, in order; those that are only read are left out."""
    looked: set[str] = field(factory=set)
    """Every door that was gone through."""
    had: list[str] = field(factory=list)
    """Those of them that were awaited and returned."""
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    """The caller's, around every verb."""
    kept: list[trio.Cancelled] = field(factory=list)
    """Cancelled that were caught and kept, to be raised when nothing is cancelled."""
    answer: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    """What the model takes its time with."""
    trace: Trace | None = None
    minted: "weakref.ref[Rollout] | None" = None

    @property
    def rollout(self) -> Rollout:
        rollout = None if self.minted is None else self.minted()
        assert rollout is not None
        return rollout

    @property
    def state(self) -> str:
        return "" if self.minted is None else self.rollout.state

    def knock(self, door: str, proper: object = None, then: Callable[[], Awaitable[object]] | None = None) -> Any:
        """Go through a door that the engine awaits."""
        self.note(door)
        if door == self.door and self.fault is not None and not self.fault.is_async:
            return self.fault.called(self)
        return self._through(door, proper, then)

    async def _through(self, door: str, proper: object, then: Callable[[], Awaitable[object]] | None) -> object:
        value: object = GO_ON
        if door == self.door and self.fault is not None:
            value = await self.fault.awaited(self)
        else:
            await trio.lowlevel.checkpoint()
        if value is GO_ON:
            value = proper if then is None else await then()
        self.had.append(door)
        return proper if value is PROPER else value

    def look(self, door: str, proper: object, *, noted: bool = False) -> Any:
        """Go through a door that the engine only calls or reads."""
        self.looked.add(door)
        if noted:
            self.began.append(door)
        broken = door == self.door and self.fault is not None
        value = self.fault.called(self) if broken and self.fault is not None else PROPER
        return proper if value is PROPER or value is GO_ON else value

    def note(self, door: str) -> None:
        self.looked.add(door)
        self.began.append(door)

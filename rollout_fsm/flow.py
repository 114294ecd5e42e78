"""What an engine lets through, and when: turns while it is not paused, segments while there is a permit, new rollouts
until it drains.

It holds, it never decides what becomes of a rollout: a held turn is admitted or refused when it is let go, a held
segment begins or not, and the state of the rollout answers both.
"""

from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar, Token
from typing import Any

import trio
from attrs import define, field, frozen

from rollout_fsm.overdue import Overdue

DRAINED = "drained"
"""The stop condition of a rollout whose engine drains."""


@define(eq=False)
class Permit:
    """Of one segment; within the block it goes on."""

    _of: trio.CapacityLimiter | None
    """Where it came from; None for a segment that needs none of its own."""
    held: bool = field(default=False, init=False)
    _outer: "Token[Permit | None] | None" = field(default=None, init=False)

    def __enter__(self) -> None:
        if self._of is not None:
            self.held = True
            self._outer = _within.set(self)

    def __exit__(self, *_: object) -> None:
        if self._of is not None and self._outer is not None:
            _within.reset(self._outer)
            self.held = False
            self._of.release_on_behalf_of(self)


_within: ContextVar[Permit | None] = ContextVar("rollout_fsm_segment_permit", default=None)
"""The permit of the segment whose code this is."""


@frozen(eq=False)
class Quiet(Awaitable[None]):
    """Something that takes effect at once and may be awaited, to wait until it is wholly in effect."""

    _wait: Callable[[], Awaitable[None]]

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()


@define(eq=False)
class Counted:
    """How many of something are going on, and who waits until none is. As a context manager: one is, in the block."""

    number: int = field(default=0, init=False)
    _none: trio.Event | None = field(default=None, init=False)

    def begin(self) -> None:
        """One is going on."""
        self.number += 1

    def end(self) -> None:
        """It is over."""
        self.number -= 1
        if not self.number and self._none is not None:
            self._none.set()
            self._none = None

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()

    async def none(self) -> None:
        """Wait until none is going on."""
        await trio.lowlevel.checkpoint()
        while self.number:
            if self._none is None:
                self._none = trio.Event()
            await self._none.wait()


@define(eq=False)
class Flow:
    """The flow of one engine."""

    overdue: Overdue
    segments: trio.CapacityLimiter | None = None
    """Permits of segments; None: no bound."""
    turns: Counted = field(factory=Counted, init=False)
    """Turns that were admitted and are not over."""
    driven: Counted = field(factory=Counted, init=False)
    """Rollouts that the engine itself drives, as `run` and `run_all` have it."""
    ends_turns: str | None = field(default=None, init=False)
    """The stop condition with which every further turn is refused; None while turns are admitted."""
    _drains: trio.Event = field(factory=trio.Event, init=False)
    _resumed: trio.Event | None = field(default=None, init=False)

    @property
    def paused(self) -> trio.Event | None:
        """Set when the pause is over; None while there is none."""
        return self._resumed

    @property
    def draining(self) -> bool:
        """Whether no new rollout is started any more."""
        return self._drains.is_set()

    def pause(self) -> Quiet:
        """Hold new turns, with the clocks of agent, drain and hooks standing still (L12). Awaited, it waits until no
        turn is going on."""
        if self._resumed is None:
            self._resumed = trio.Event()
            self.overdue.freeze()
        return Quiet(self.turns.none)

    def resume(self) -> None:
        """Let the held turns go on."""
        if self._resumed is not None:
            self.overdue.thaw()
            self._resumed.set()
            self._resumed = None

    def drain(self) -> Quiet:
        """Refuse every further turn and start no new rollout; a pause is over. Awaited, it waits until no rollout is
        left that the engine drives."""
        self.ends_turns = DRAINED
        self.stop()
        self.resume()
        return Quiet(self.driven.none)

    def stop(self) -> None:
        """Start no new rollout."""
        self._drains.set()

    async def rest(self, seconds: float) -> bool:
        """Wait before another attempt; returns whether it may begin: not when the engine drains, which ends the
        wait."""
        with trio.move_on_after(seconds):
            await self._drains.wait()
        return not self.draining

    def start(self, segment: Context, begin: Callable[[], object]) -> None:
        """Start what belongs to a running segment. Where that was asked for from outside, over HTTP, it gets the
        segment's context, so that it goes with its permit."""
        if self.segments is None or _within.get() is not None:
            begin()
        else:
            segment.run(begin)

    async def permit(self, waits: Callable[[trio.CancelScope | None], None]) -> Permit | None:
        """The permit of a segment, waited for if need be; `waits` is given what ends the wait, and None when it is
        over. Returns None if it was ended so.

        One that is asked for by code of a running segment, a tool that talks to another agent, say, goes with the
        permit of that segment: waiting for another one, it could wait for ever.
        """
        outer = _within.get()
        if self.segments is None or (outer is not None and outer.held):
            return Permit(None)
        permit = Permit(self.segments)
        try:
            self.segments.acquire_on_behalf_of_nowait(permit)
        except trio.WouldBlock:
            with trio.CancelScope() as wait:
                waits(wait)
                try:
                    await self.segments.acquire_on_behalf_of(permit)
                finally:
                    waits(None)
            if wait.cancelled_caught:
                return None
        return permit

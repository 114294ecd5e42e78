"""Bounds, and who runs past one (L74). A bound is a cancellation plus the clock: code that shields itself, swallows the
cancellation or never yields cannot be ended, so it is named in the log when its bound passes.

One task for the whole engine watches; whoever begins something bounded costs an entry in a dict, not a task. While
the engine is paused, the bounds of what it pauses stand still (L12): all changes of a bound go through here.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, TypeVar

import trio
from attrs import define, field, frozen

from rollout_fsm.attempt import Attempt, attempt

T = TypeVar("T")

log = logging.getLogger("rollout_fsm")

GRACE = 1.0
"""Seconds past its bound after which code that was interrupted is taken to ignore that."""


@define(eq=False)
class Watched:
    """Something bounded. As a context manager it is going on within the block, and gives the block its scope."""

    _by: "Overdue"
    _seconds: float
    """How many it had when it was asked for."""
    rollout: str
    doing: Callable[[], str]
    shield: bool
    pausable: bool
    began: float = field(init=False)
    """When it began to go on, in the event loop's seconds."""
    scope: trio.CancelScope = field(init=False)
    """Its deadline is the bound."""
    left: float | None = field(default=None, init=False)
    """Seconds that were left when the pause began, or that it got since; None while its clock runs."""
    named: bool = field(default=False, init=False)

    def __enter__(self) -> trio.CancelScope:
        self.began = trio.current_time()
        deadline = self._by.deadline(self, self._seconds, now=self.began)
        self.scope = trio.CancelScope(deadline=deadline, shield=self.shield)
        self._by.watched[self.scope] = self
        return self.scope.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        del self._by.watched[self.scope]
        return self.scope.__exit__(kind, error, traceback)


@frozen(kw_only=True, eq=False)
class Bounded(Generic[T]):
    """What bounded work came to. Its scope's deadline decides whether that was in time: a bound that is exactly met has
    passed, and a difference of times would be rounded."""

    came: Attempt[T]
    elapsed: float
    """Seconds."""
    in_time: bool


@define(eq=False)
class Overdue:
    """Watches the bounded work of one engine."""

    watched: dict[trio.CancelScope, Watched] = field(factory=dict, init=False)
    """What is going on, by its scope."""
    _frozen_at: float | None = field(default=None, init=False)
    _frozen_for: float = field(default=0.0, init=False)
    """Seconds of the pauses that are over."""
    _sleep: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _life: trio.CancelScope = field(factory=trio.CancelScope, init=False)

    def bounded(
        self, seconds: float, *, rollout: str, doing: Callable[[], str], shield: bool = False, pausable: bool = False
    ) -> Watched:
        """A cancel scope of so many seconds, watched. `pausable`: they stand still while the engine is paused."""
        return Watched(self, seconds, rollout, doing, shield, pausable)

    async def attempt(
        self,
        call: Callable[[], Awaitable[T]],
        seconds: float,
        *,
        rollout: str,
        doing: Callable[[], str],
        shield: bool = False,
        pausable: bool = False,
    ) -> Bounded[T]:
        """Call and await within so many seconds, watched; whatever comes out is judged by the clock when it does."""
        now = self.now if pausable else trio.current_time
        started = now()
        with self.bounded(seconds, rollout=rollout, doing=doing, shield=shield, pausable=pausable) as scope:
            came = await attempt(call)
        return Bounded(came=came, elapsed=now() - started, in_time=trio.current_time() < scope.deadline)

    def shorten(self, scope: trio.CancelScope, seconds: float) -> None:
        """Of something that is going on, no more than so many seconds are left."""
        watched = self.watched[scope]
        left = scope.deadline - trio.current_time() if watched.left is None else watched.left
        if seconds < left:
            self._bind(watched, seconds)

    def cut_off(self, scope: trio.CancelScope, *, rollout: str, doing: Callable[[], str]) -> None:
        """Cancel somebody's scope, and watch what goes on in it until `ended`."""
        scope.cancel()
        watched = self.watched[scope] = Watched(self, 0.0, rollout, doing, shield=False, pausable=False)
        watched.scope = scope
        self._bind(watched, 0.0)

    def ended(self, scope: trio.CancelScope) -> None:
        """Nothing goes on any more in a scope that may have been cut off."""
        self.watched.pop(scope, None)

    def lift(self, scope: trio.CancelScope) -> None:
        """What is going on is under no bound any more."""
        watched = self.watched[scope]
        if watched.left is not None or scope.deadline != math.inf:
            self._bind(watched, math.inf)

    def left(self, scope: trio.CancelScope) -> float:
        """Seconds that are left of something that is going on; never below zero."""
        watched = self.watched[scope]
        return max(0.0, scope.deadline - trio.current_time()) if watched.left is None else watched.left

    def now(self) -> float:
        """The time of what is pausable: seconds of the event loop's clock, which stand still while the engine is
        paused (L12)."""
        now = trio.current_time() if self._frozen_at is None else self._frozen_at
        return now - self._frozen_for

    def freeze(self) -> None:
        """From now on nothing that is pausable runs out of time."""
        if self._frozen_at is not None:
            return
        self._frozen_at = trio.current_time()
        for watched in self.watched.values():
            if watched.pausable and not watched.scope.cancel_called:  # what has run out stays so
                self._bind(watched, watched.scope.deadline - self._frozen_at)

    def thaw(self) -> None:
        """The clocks go on: each bound has moved by the length of the pause."""
        if self._frozen_at is None:
            return
        self._frozen_for += trio.current_time() - self._frozen_at
        self._frozen_at = None
        for watched in self.watched.values():
            if watched.left is not None:
                self._bind(watched, watched.left)

    def deadline(self, watched: Watched, seconds: float, *, now: float) -> float:
        """So many seconds are left, from now on or from the end of the pause; the deadline that this is."""
        watched.left = seconds if watched.pausable and self._frozen_at is not None else None
        deadline = math.inf if watched.left is not None else now + seconds
        if deadline + GRACE < self._sleep.deadline:
            self._sleep.deadline = deadline + GRACE
        return deadline

    def _bind(self, watched: Watched, seconds: float) -> None:
        watched.scope.deadline = self.deadline(watched, seconds, now=trio.current_time())

    async def run(self) -> None:
        """Watch until `stop`."""
        with self._life:
            while True:
                self._sleep = trio.CancelScope(deadline=self._next())
                with self._sleep:
                    await trio.sleep_forever()
                self._name()

    def stop(self) -> None:
        """Watch no longer."""
        self._life.cancel()

    def _next(self) -> float:
        now = trio.current_time()
        due = (watched.scope.deadline + GRACE for watched in self.watched.values())
        return min((deadline for deadline in due if deadline > now), default=math.inf)

    def _name(self) -> None:
        now = trio.current_time()
        for watched in self.watched.values():
            late = now - watched.scope.deadline
            if watched.scope.deadline + GRACE <= now and not watched.named:
                watched.named = True
                log.warning(
                    "rollout %s: %s ignores that its bound passed %g s ago; it holds up its own rollout",
                    watched.rollout,
                    watched.doing(),
                    late,
                )

"""Bounds, and who runs past one (L74). A bound is a cancellation plus the clock: code that shields itself, swallows the
cancellation or never yields cannot be ended, so it is named in the log when its bound passes.

One task for the whole engine watches; whoever begins something bounded costs an entry in a dict, not a task.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
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
    """Something bounded that is going on."""

    scope: trio.CancelScope
    """Its deadline is the bound; whoever moves it tells `Overdue.moved`."""
    rollout: str
    doing: Callable[[], str]
    named: bool = False


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

    _watched: dict[int, Watched] = field(factory=dict, init=False)
    _tokens: "count[int]" = field(factory=count, init=False)
    _sleep: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _life: trio.CancelScope = field(factory=trio.CancelScope, init=False)

    @contextmanager
    def bounded(
        self, seconds: float, *, rollout: str, doing: Callable[[], str], shield: bool = False
    ) -> Iterator[trio.CancelScope]:
        """A cancel scope of so many seconds, watched."""
        token = next(self._tokens)
        with trio.CancelScope(deadline=trio.current_time() + seconds, shield=shield) as scope:
            self._watched[token] = Watched(scope, rollout, doing)
            self.moved(scope)
            try:
                yield scope
            finally:
                del self._watched[token]

    async def attempt(
        self,
        call: Callable[[], Awaitable[T]],
        seconds: float,
        *,
        rollout: str,
        doing: Callable[[], str],
        shield: bool = False,
    ) -> Bounded[T]:
        """Call and await within so many seconds, watched; whatever comes out is judged by the clock when it does."""
        started = trio.current_time()
        with self.bounded(seconds, rollout=rollout, doing=doing, shield=shield) as scope:
            came = await attempt(call)
        returned = trio.current_time()
        return Bounded(came=came, elapsed=returned - started, in_time=returned < scope.deadline)

    def moved(self, scope: trio.CancelScope) -> None:
        """The bound of something that is going on has changed."""
        self._sleep.deadline = min(self._sleep.deadline, scope.deadline + GRACE)

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
        due = (watched.scope.deadline + GRACE for watched in self._watched.values())
        return min((deadline for deadline in due if deadline > now), default=math.inf)

    def _name(self) -> None:
        now = trio.current_time()
        for watched in self._watched.values():
            late = now - watched.scope.deadline
            if watched.scope.deadline + GRACE <= now and not watched.named:
                watched.named = True
                log.warning(
                    "rollout %s: %s ignores that its bound passed %g s ago; it holds up its own rollout",
                    watched.rollout,
                    watched.doing(),
                    late,
                )

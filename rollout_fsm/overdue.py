"""Who runs past a bound is named in the log (L74). A bound is a cancellation plus the clock: code that shields
itself, swallows the cancellation or never yields cannot be ended, so somebody must be able to see what holds its
rollout up.

One task for the whole engine watches; whoever begins something bounded costs an entry in a dict, not a task.
"""

import logging
import math
from collections.abc import Callable
from itertools import count

import trio
from attrs import define, field, frozen

log = logging.getLogger("rollout_fsm")

GRACE = 1.0
"""Seconds past its bound after which code that was interrupted is taken to ignore that."""


@frozen(eq=False)
class _Watched:
    deadline: float
    rollout: str
    doing: Callable[[], str]


@define(eq=False)
class Overdue:
    """Watches bounded work of one engine."""

    _watched: dict[int, _Watched] = field(factory=dict, init=False)
    _tokens: "count[int]" = field(factory=count, init=False)
    _sleep: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _life: trio.CancelScope = field(factory=trio.CancelScope, init=False)

    def begin(self, *, deadline: float, rollout: str, doing: Callable[[], str]) -> int:
        """Something bounded begins; `deadline` in the event loop's seconds. Returns what `end` is to be told."""
        token = next(self._tokens)
        self._watched[token] = _Watched(deadline + GRACE, rollout, doing)
        if deadline + GRACE < self._sleep.deadline:
            self._sleep.deadline = deadline + GRACE
        return token

    def end(self, token: int) -> None:
        """It has ended, in time or not."""
        self._watched.pop(token, None)

    async def run(self) -> None:
        """Watch until `stop`."""
        with self._life:
            while True:
                self._sleep = trio.CancelScope()
                self._sleep.deadline = min((watched.deadline for watched in self._watched.values()), default=math.inf)
                with self._sleep:
                    await trio.sleep_forever()
                self._name()

    def stop(self) -> None:
        """Watch no longer."""
        self._life.cancel()

    def _name(self) -> None:
        now = trio.current_time()
        for token, watched in [(token, watched) for token, watched in self._watched.items() if watched.deadline <= now]:
            del self._watched[token]
            log.warning(
                "rollout %s: %s ignores that its bound passed %g s ago; it holds up its own rollout until it returns",
                watched.rollout,
                watched.doing(),
                now - watched.deadline + GRACE,
            )

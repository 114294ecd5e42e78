"""Virtual time: how scripted code spends it, and what happens when.

Of several things at one instant, what a trigger does comes before what scripted code that ends or is interrupted there
hands to the engine; and scripted code whose time is over when it is interrupted has ended by itself. Both are kept
here: all scripted code spends its time with `spend`, which lets the triggers of the instant act before it returns or
raises. So the outcome of a scenario does not depend on the order in which the event loop runs its tasks.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush

import trio
import trio.testing
from attrs import define, field

from rollout_fsm.simulation.trigger import Trigger

SAME_INSTANT = 1e-9
"""Seconds within which two times are one: 0.1 + 0.2 is 0.3 for whoever writes a scenario."""


@define(eq=False)
class Timeline:
    """What is to happen in one play, and what has been entered."""

    nursery: trio.Nursery
    """The play's own: the triggers live in it, and what other tasks call."""
    start: float = field(factory=trio.current_time)
    running: list[str] = field(factory=list)
    """Scripted code that has begun and not ended, by name."""
    _entered: set[str] = field(factory=set)
    _expected: dict[str, list[tuple[float, Callable[[], None]]]] = field(factory=dict)
    """What happens so long after a phase is entered for the first time."""
    _due: list[tuple[float, int, Callable[[], None]]] = field(factory=list)
    """What happens at a known time: a heap; at one instant what was planned first comes first."""
    _planned: int = 0
    _starting: deque[Callable[[], Awaitable[None]]] = field(factory=deque)
    """What other tasks are to do, but have not begun: oldest first, whichever task comes to run first."""

    @property
    def now(self) -> float:
        """Seconds since the play began."""
        return trio.current_time() - self.start

    def plan(self, trigger: Trigger, act: Callable[[], None]) -> None:
        """Have something happen at the trigger."""
        if trigger.phase is None:
            assert trigger.time is not None
            self._plan_at(self.start + trigger.time, act)
        else:
            self._expected.setdefault(trigger.phase, []).append((trigger.after, act))

    def enter(self, phase: str) -> None:
        """A phase is entered."""
        if phase in self._entered:
            return
        self._entered.add(phase)
        for after, act in self._expected.pop(phase, ()):
            self._plan_at(trio.current_time() + after, act)

    @contextmanager
    def on_stage(self, name: str) -> Iterator[None]:
        """Scripted code runs inside of this."""
        self.running.append(name)
        try:
            yield
        finally:
            self.running.remove(name)

    async def spend(self, delay: float, *, ignore_cancel: bool = False) -> None:
        """Take so many seconds. An interruption ends it early: raised, or swallowed if it is to be ignored."""
        until = trio.current_time() + delay
        deadline = trio.current_effective_deadline()
        if abs(deadline - until) < SAME_INSTANT:
            until = deadline
        try:
            if delay > 0:
                await trio.sleep_until(until)
        except trio.Cancelled:
            await self.settle()
            if not ignore_cancel and trio.current_time() < until - SAME_INSTANT:
                raise
        else:
            await self.settle()

    async def settle(self) -> None:
        """Let the triggers of this instant act, before anything is handed to the engine. Not interrupted."""
        self._act()
        while self._starting:
            await trio.lowlevel.cancel_shielded_checkpoint()

    def call(self, work: Callable[[], Awaitable[None]]) -> None:
        """Another task does this, beginning now."""
        self._starting.append(work)
        self.nursery.start_soon(self._begin)

    @contextmanager
    def alarm(self, delay: float | None, act: Callable[[], object]) -> Iterator[None]:
        """Do something after so many seconds, unless the block was left before."""
        if delay is None:
            yield
            return
        scope = trio.CancelScope()
        self.nursery.start_soon(self._ring, scope, delay, act)
        try:
            yield
        finally:
            scope.cancel()

    async def _ring(self, scope: trio.CancelScope, delay: float, act: Callable[[], object]) -> None:
        with scope:
            await trio.sleep(delay)
            await self.settle()
            if not scope.cancel_called:
                act()

    async def _begin(self) -> None:
        work = self._starting.popleft()
        await work()

    def _plan_at(self, time: float, act: Callable[[], None]) -> None:
        self._planned += 1
        heappush(self._due, (time, self._planned, act))
        if time < math.inf:
            self.nursery.start_soon(self._await, time)

    async def _await(self, time: float) -> None:
        """See to it that a trigger acts, also at an instant at which no scripted code ends."""
        await trio.sleep_until(time)
        await trio.testing.wait_all_tasks_blocked()
        self._act()

    def _act(self) -> None:
        while self._due and self._due[0][0] <= trio.current_time() + SAME_INSTANT:
            _, _, act = heappop(self._due)
            act()

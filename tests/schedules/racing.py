"""A race on a real rollout: who runs side by side with whom, what each of them met, and what holds however it ends.

A racer is an async function with a name. In the race every order is possible, from the first step of the racers until
all of them are through; what brings the rollout to where the race begins is done in one order.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from attrs import define, field, frozen

from rollout_fsm import Response, Rollout, Runtime, Task, Trace, check_trace, intercept, reward, stop
from rollout_fsm.trace import TransitionRecord
from tests.schedules.scheduler import Scheduler
from tests.world import ScriptedRuntime, World, held_in

Racer = Callable[[], Awaitable[object]]
CANCELLED = "Cancelled"
"""What a racer whose scope was cancelled is said to have met."""
CONCLUDES = {"releasing": "completed", "completed": "completed", "discarding": "failed", "failed": "failed"}
"""The states in which a cancellation changes nothing any more, and where they end; in all others it wins (L71)."""


def world_of(runtime: Runtime) -> World:
    """The world that a scripted runtime belongs to."""
    assert isinstance(runtime, ScriptedRuntime)
    return runtime.world


@frozen(kw_only=True)
class RacedTask(Task):
    """A task that finds its world by its runtime, so that one class serves every run."""

    async def setup(self, trace: Trace, runtime: Runtime) -> None:
        await world_of(runtime).act("task.setup")

    async def finalize(self, trace: Trace, runtime: Runtime) -> None:
        await world_of(runtime).act("finalize")

    @reward
    async def good(self, runtime: Runtime) -> float:
        await world_of(runtime).act("score.good")
        return 1.0


RACED = RacedTask(prompt="hello")


@frozen(kw_only=True)
class Stopping(RacedTask):
    """Its response stop takes a step, and fires."""

    @stop
    async def said_enough(self, response: Response) -> bool:
        await trio.lowlevel.checkpoint()
        return True


@frozen(kw_only=True)
class Failing(RacedTask):
    """Its response interceptor takes a step, and fails."""

    @intercept
    async def think(self, response: Response) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("no thought")


@define(eq=False)
class Race:
    """One race, on a rollout that rests where the race begins."""

    scheduler: Scheduler = field(repr=False)
    rollout: Rollout
    world: World = field(repr=False)
    met: dict[str, object] = field(factory=dict)
    """What each racer returned, or the name of what it raised."""

    async def run(self, **racers: Racer) -> None:
        """Let them race. Afterwards no task is left of it."""
        before = trio.lowlevel.current_statistics().tasks_living
        with self.scheduler.free():
            async with trio.open_nursery() as nursery:
                for name, racer in racers.items():
                    nursery.start_soon(self._keep, name, racer, name=name)
        left = trio.lowlevel.current_statistics().tasks_living - before
        assert left == 0, f"{left} tasks are left"

    async def _keep(self, name: str, racer: Racer) -> None:
        try:
            self.met[name] = await racer()
        except AssertionError:
            raise
        except Exception as raised:  # noqa: BLE001  (what a verb raises is part of what came of the race)
            self.met[name] = type(raised).__name__

    async def moment(self) -> str:
        """Come at any moment of the race; the state that the rollout is in then."""
        await self.scheduler.any_moment()
        return self.rollout.state

    async def close(self) -> Trace:
        """Close; what that returns is the trace, and finished, whoever closed (L50)."""
        trace = await self.rollout.close()
        assert trace is self.rollout.trace
        assert trace.is_completed
        assert trace.sealed
        return trace

    @property
    def trace(self) -> Trace:
        """The trace of the rollout."""
        return self.rollout.trace

    @property
    def taken(self) -> list[str]:
        """The triggers of the transitions that were taken."""
        return [transition.trigger for transition in self.trace.transitions]

    def ended(self) -> None:
        """The rollout is over, by itself: its trace closed and in order, everything released once, newest first."""
        trace = self.trace
        assert self.rollout.is_final, f"left in {self.rollout.state}"
        assert trace.sealed
        assert trace.transitions[-1].target == self.rollout.state
        assert check_trace(trace) == []
        assert self.world.unreleased() == []


@frozen
class Teller:
    """Puts the transitions of the rollout into the account of a schedule."""

    scheduler: Scheduler

    def on_transition(self, trace: Trace, taken: TransitionRecord) -> None:
        self.scheduler.say(f"{taken.trigger}: {taken.source} → {taken.target}")


@asynccontextmanager
async def racing(
    scheduler: Scheduler, state: str = "waiting", *, task: Task = RACED, **settings: Any
) -> AsyncIterator[Race]:
    """A rollout with a user that rests in this state, to be raced on; it must have ended when the race is left."""
    observers = [Teller(scheduler)] if scheduler.telling else []
    async with held_in(state, task=task, observers=observers, **settings) as held:
        await trio.testing.wait_all_tasks_blocked()  # what the engine has started is through with its start
        race = Race(scheduler, held.rollout, held.world)
        yield race
        race.ended()
        before = len(race.trace.transitions), len(race.trace.nodes), len(race.trace.calls), len(race.trace.warnings)
    after = len(race.trace.transitions), len(race.trace.nodes), len(race.trace.calls), len(race.trace.warnings)
    assert after == before, "the trace was changed after its end"


@define(eq=False)
class Scoped:
    """A racer in a scope of its own, which another may cancel."""

    racer: Racer
    scope: trio.CancelScope = field(factory=trio.CancelScope)

    async def __call__(self) -> object:
        with self.scope:
            return await self.racer()
        return CANCELLED

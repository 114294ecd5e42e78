"""Cancel against the deadline: at the very instant at which a bound runs out, and from then on, somebody cancels (L13,
L14, L14a, L70, L71).

As long as the state has not moved the cancellation wins, and the timeout is not even a warning; once it has, the
timeout stands on the trace and the cancellation is met where the rollout has got to.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import field, frozen

from rollout_fsm import Rollout, RolloutLimits, RolloutPolicy, RolloutTimeouts, Runtime, Trace, TurnRefused, stop
from tests.profiles import sample
from tests.schedules.conftest import Every
from tests.schedules.racing import CANCELLED, CONCLUDES, Race, RacedTask, Scoped, racing, world_of
from tests.schedules.scheduler import Scheduler
from tests.world import Act, error_types, kinds, sleeps, swallows

BOUND = 1.0
"""Virtual seconds, of the bound and of the one who cancels."""
SCORED = ("closing", "finalizing", "scoring", "releasing", "completed")


@frozen(kw_only=True)
class Bounded:
    """A state whose bound runs out."""

    setting: str
    start: str
    verb: Callable[[Rollout], Awaitable[object]]
    event: str
    """Whose code is running then."""
    state: str
    after: tuple[str, ...]
    """The states that follow the timeout, in which a cancellation can come."""
    error: str | None
    condition: str | None = None
    """The stop condition, where the bound's end or what came before sets another than `error`."""
    trigger: str = "timed_out"
    """What the bound's end fires."""
    settings: dict[str, Any] = field(factory=dict)
    refused: bool = False
    """Whether the segment comes to its event after a turn that was refused."""


@frozen(kw_only=True)
class Hooked(RacedTask):
    """A task with a stop."""

    @stop
    async def asked(self, trace: Trace, runtime: Runtime) -> bool:
        await world_of(runtime).act("hook")
        return False


CASES = {
    "boot": Bounded(
        setting="boot",
        start="created",
        verb=Rollout.open,
        event="runtime.start",
        state="booting",
        after=("failing", "discarding", "failed"),
        error="SandboxError",
    ),
    "setup": Bounded(
        setting="setup",
        start="created",
        verb=Rollout.open,
        event="harness.setup",
        state="setup",
        after=("failing", "discarding", "failed"),
        error="HarnessError",
    ),
    "agent": Bounded(
        setting="agent",
        start="waiting",
        verb=Rollout.step,
        event="segment",
        state="stepping",
        after=("failing", "discarding", "failed"),
        error="HarnessError",
    ),
    "agent, a stop by policy": Bounded(
        setting="agent",
        start="waiting",
        verb=Rollout.step,
        event="segment",
        state="stepping",
        after=("stopped", *SCORED),
        error=None,
        condition="agent_timeout",
        settings={"policy": RolloutPolicy(agent_expiry="stop")},
    ),
    "a model call": Bounded(
        setting="agent",
        start="waiting",
        verb=Rollout.step,
        event="model",
        state="stepping",
        after=("failing", "discarding", "failed"),
        error="HarnessError",
    ),
    "drain": Bounded(
        setting="drain",
        start="waiting",
        verb=Rollout.step,
        event="drain",
        state="stopping",
        after=("stopped", *SCORED),
        error=None,
        condition="max_turns",
        settings={"limits": RolloutLimits(max_turns=0)},
        refused=True,
    ),
    "a hook": Bounded(
        setting="hook",
        start="waiting",
        verb=Rollout.step,
        event="hook",
        state="stepping",
        after=("failing", "discarding", "failed"),
        error="TaskError",
        trigger="errored",
        settings={"task": Hooked(prompt="hello")},
    ),
    "finalize": Bounded(
        setting="finalize",
        start="waiting",
        verb=Rollout.close,
        event="finalize",
        state="finalizing",
        after=("discarding", "failed"),
        error="TaskError",
        condition="user_closed",
    ),
    "scoring": Bounded(
        setting="scoring",
        start="waiting",
        verb=Rollout.close,
        event="score.good",
        state="scoring",
        after=("discarding", "failed"),
        error="TaskError",
        condition="user_closed",
    ),
}
ACTS: dict[str, Callable[[], Act]] = {
    "hangs": lambda: trio.sleep_forever,
    "returns then": lambda: sleeps(BOUND),
    "swallows it": lambda: swallows,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every bound with every way to meet it, as far as the profile goes."""
    if {"name", "act", "means"} <= set(metafunc.fixturenames):
        every = list(itertools.product(CASES, ACTS, ("cancel", "scope")))
        metafunc.parametrize(("name", "act", "means"), sample(every, dev=5, ci=20))


def test_at_the_instant_of_a_bound_the_state_decides_between_timeout_and_cancellation(
    every: Every, name: str, act: str, means: str
) -> None:
    bounded = CASES[name]

    async def case(scheduler: Scheduler) -> str:
        async with bounded_by(scheduler, bounded, act) as race:
            return await raced(race, bounded, means)

    every(case, ci=24).expect({bounded.state, *bounded.after})


@asynccontextmanager
async def bounded_by(scheduler: Scheduler, bounded: Bounded, act: str) -> AsyncIterator[Race]:
    """A race whose rollout runs into the bound, doing that."""
    timeouts = RolloutTimeouts(**{bounded.setting: BOUND})
    async with racing(scheduler, bounded.start, timeouts=timeouts, **bounded.settings) as race:
        world = race.world
        world.script[bounded.event] = ACTS[act]()

        async def refused() -> None:
            assert world.session is not None
            with pytest.raises(TurnRefused):
                await world.session.turn()
            await world.act(bounded.event)

        if bounded.refused:
            world.script["segment"] = refused
        yield race


def driving(race: Race, bounded: Bounded) -> Scoped:
    """Who drives into the bound, and ends the rollout after a step of its own."""

    async def drive() -> object:
        async with race.rollout:
            came = await bounded.verb(race.rollout)
            await trio.lowlevel.checkpoint()
        return came

    return Scoped(drive)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", CASES)
def test_a_bound_and_a_deadline_of_the_caller_at_the_same_instant_are_a_cancellation(
    every: Every, name: str, act: str
) -> None:
    """Nobody has to be the first: the caller is asked for before the clock (L14a)."""
    bounded = CASES[name]

    async def case(scheduler: Scheduler) -> str:
        async with bounded_by(scheduler, bounded, act) as race:
            driver = driving(race, bounded)
            driver.scope.deadline = trio.current_time() + BOUND
            await race.run(driver=driver)
            assert race.met["driver"] is CANCELLED
            assert "timed_out" not in race.taken
            assert race.trace.errors == []
            return race.rollout.state

    every(case).expect({"aborted"})


async def raced(race: Race, bounded: Bounded, means: str) -> str:
    """A driver that runs into the bound, and somebody who cancels from then on; the state that this one met."""
    rollout, driver, asked = race.rollout, driving(race, bounded), ""

    async def canceller() -> None:
        nonlocal asked
        await trio.sleep(BOUND)
        asked = await race.moment()
        if means == "scope":
            driver.scope.cancel()
        else:
            await rollout.cancel()
            assert rollout.is_final

    await race.run(canceller=canceller, driver=driver)
    trace = race.trace
    assert rollout.state == CONCLUDES.get(asked, "aborted")
    in_time = asked == bounded.state
    assert (bounded.trigger in race.taken) is not in_time
    assert error_types(trace) == ([bounded.error] if bounded.error and not in_time else [])
    overruled = in_time and bounded.trigger == "errored"  # a failure that loses is a warning, a timeout is nothing
    assert set(kinds(trace)) <= ({"after_cancel"} if overruled else set())
    earlier = bounded.condition if bounded.condition != "agent_timeout" else None
    if in_time:
        assert trace.stop_condition == (earlier or "cancelled")
        aborted_result = race.trace if bounded.verb is Rollout.close else False
        assert race.met["driver"] == (CANCELLED if means == "scope" else aborted_result)
    else:
        assert trace.stop_condition == (bounded.condition or "error")
    assert trio.current_time() == BOUND
    return asked

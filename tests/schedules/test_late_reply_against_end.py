"""A late reply against the end of the segment: the harness returns at the very instant at which the model answers a
call that is in flight, or while what follows the answer goes on (L19, L20, L24, L34, L35).

Either the call is over before the segment is, with everything that follows from it, or it is cut off: it commits
nothing, fires nothing, fails nothing. Whoever made the call is told which.
"""

from collections.abc import Callable

import pytest
import trio
from attrs import field, frozen

from rollout_fsm import ProviderError, Request, Response, RolloutLimits, Task, TurnRefused, intercept
from tests.schedules.conftest import Every
from tests.schedules.racing import RACED, Failing, Race, RacedTask, Stopping, racing
from tests.schedules.scheduler import Scheduler
from tests.world import Act, error_types, sleeps

CUT_OFF = "SegmentEnded"
INSTANT = 1.0


@frozen(kw_only=True)
class Thoughtful(RacedTask):
    """Its response interceptor takes a step."""

    @intercept
    async def think(self, response: Response) -> None:
        await trio.lowlevel.checkpoint()


def fails_then() -> Act:
    async def act() -> object:
        await trio.sleep(INSTANT)
        raise ProviderError("the provider is down", status_code=503)

    return act


@frozen(kw_only=True)
class Late:
    """What follows when the call is over before the segment is."""

    task: Task = RACED
    model: Callable[[], Act] = lambda: sleeps(INSTANT)
    told: str = "Response"
    turns: int = 1
    state: str = "waiting"
    condition: str | None = None
    errors: list[str] = field(factory=list)
    trigger: str = "segment_ended"


CASES = {
    "a reply": Late(),
    "a reply that is intercepted": Late(task=Thoughtful(prompt="hello")),
    "a reply that fires a stop": Late(
        task=Stopping(prompt="hello"), told="TurnRefused", state="stopped", condition="said_enough"
    ),
    "a failure of the model": Late(
        model=fails_then, told="ProviderError", turns=0, state="failing", condition="error", errors=["ProviderError"]
    ),
    "a failure of a hook": Late(
        task=Failing(prompt="hello"),
        told="TaskError",
        turns=0,
        state="failing",
        condition="error",
        errors=["TaskError"],
        trigger="errored",
    ),
}


async def raced(race: Race, late: Late) -> str:
    """A segment that ends when the model answers the call of a task that is not the harness's own; what that was
    told."""
    world, begun = race.world, trio.Event()

    async def segment() -> None:
        begun.set()
        await trio.sleep(INSTANT)
        await race.scheduler.any_moment()

    world.script |= {"segment": segment, "model": late.model()}

    async def sub_agent() -> str:
        await begun.wait()
        reply = await world.exchange.respond(Request(messages=world.exchange.prompt))
        return type(reply).__name__

    async def driver() -> bool:
        return await race.rollout.step()

    await race.run(driver=driver, sub_agent=sub_agent)
    trace, told = race.trace, str(race.met["sub_agent"])
    if told == CUT_OFF:
        assert trace.num_turns == 0
        assert trace.nodes == []
        assert race.rollout.state == "stopped"
        assert (trace.stop_condition, trace.errors) == ("no_progress", [])
        assert "refused" not in race.taken
    else:
        assert told == late.told
        assert trace.num_turns == late.turns
        assert race.rollout.state == late.state
        assert (trace.stop_condition, error_types(trace)) == (late.condition, late.errors)
        assert race.taken[-1] == late.trigger
    assert race.met["driver"] is (race.rollout.state == "waiting")
    assert trace.warnings == []
    return told


@pytest.mark.parametrize("name", CASES)
def test_a_call_whose_answer_comes_as_the_segment_ends_is_whole_or_cut_off(every: Every, name: str) -> None:
    late = CASES[name]

    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, task=late.task) as race:
            told = await raced(race, late)
            await race.close()
            return told

    every(case).expect({late.told, CUT_OFF})


def test_a_call_that_was_cut_off_gives_its_place_back_to_the_next_segment(every: Every) -> None:
    """Of two turns the harness has had one; the second is the late call's, or the next segment's (L15, L24)."""

    async def case(scheduler: Scheduler) -> tuple[str, ...]:
        async with racing(scheduler, limits=RolloutLimits(max_turns=2)) as race:
            world, begun, told = race.world, trio.Event(), {}

            async def ask(who: str) -> None:
                try:
                    told[who] = type(await world.exchange.respond(Request(messages=world.exchange.prompt))).__name__
                except TurnRefused as refused:
                    told[who] = type(refused).__name__

            async def first() -> None:
                await ask("first")
                begun.set()
                await trio.sleep(INSTANT)
                await scheduler.any_moment()

            async def second() -> None:
                await ask("second")

            async def late() -> None:
                await begun.wait()
                await ask("late")

            async def driver() -> bool:
                going = await race.rollout.step()
                world.script["segment"] = second
                return going and await race.rollout.step("more")

            world.script |= {"segment": first, "model": sleeps(INSTANT)}
            await race.run(driver=driver, late=late)
            assert race.trace.num_turns == 2
            refused = told["second"] != "Response"
            assert race.trace.stop_condition == ("max_turns" if refused else None)
            await race.close()
            return told["first"], told["late"], told["second"]

    every(case).expect({("Response", "Response", "TurnRefused"), ("Response", CUT_OFF, "Response")})


def test_a_call_that_comes_while_the_segment_ends_is_turned_away_and_fires_nothing(every: Every) -> None:
    """The harness has returned, and the segment waits for a call that it has cut off. Who asks now would have met the
    limit before; now it meets no segment (L24)."""

    async def case(scheduler: Scheduler) -> tuple[str, str | None]:
        async with racing(scheduler, limits=RolloutLimits(max_turns=1)) as race:
            world, begun = race.world, trio.Event()
            returned = came_late = False

            async def segment() -> None:
                nonlocal returned
                begun.set()
                await trio.sleep(INSTANT)
                await scheduler.any_moment()
                returned = True

            async def lingers() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(INSTANT)

            async def sub_agent() -> str:
                await begun.wait()
                reply = await world.exchange.respond(Request(messages=world.exchange.prompt))
                return type(reply).__name__

            async def late() -> str:
                nonlocal came_late
                await trio.sleep(INSTANT)
                await scheduler.any_moment()
                came_late = returned
                try:
                    await world.exchange.respond(Request(messages=world.exchange.prompt))
                except TurnRefused as refused:
                    return str(refused)
                return "a reply"

            async def driver() -> bool:
                return await race.rollout.step()

            world.script |= {"segment": segment, "model": lingers}
            await race.run(driver=driver, sub_agent=sub_agent, late=late)
            assert race.met["sub_agent"] == CUT_OFF
            told, condition = str(race.met["late"]), race.trace.stop_condition
            assert told == ("no segment is running" if came_late else "rollout stopped: max_turns")
            assert condition == ("no_progress" if came_late else "max_turns")
            assert ("refused" in race.taken) is not came_late
            assert race.trace.num_turns == 0
            await race.close()
            return told, condition

    every(case, ci=80).expect({("no segment is running", "no_progress"), ("rollout stopped: max_turns", "max_turns")})

"""A hang-up against a commit: the harness gives its call up at the very instant at which the model answers, or while
what follows the answer goes on (L15, L24, L33, L34).

Until the model has answered, a hang-up cancels the call: nothing is committed and the call's place is free. From then
on it changes nothing: the turn is committed, whether somebody waits for it or not.
"""

from collections.abc import Awaitable, Callable

import pytest
import trio
from attrs import define, field, frozen

from rollout_fsm import Response, RolloutLimits, Task, TaskError, TurnRefused, intercept
from tests.schedules.conftest import Every
from tests.schedules.racing import RACED, Failing, Race, RacedTask, Stopping, racing
from tests.schedules.scheduler import Scheduler
from tests.world import error_types, sleeps

INSTANT = 1.0
REPLY, FAILED, IN_TIME, TOO_LATE = "a reply", "a failure", "hung up before the answer", "hung up after the answer"


@frozen(kw_only=True)
class Thoughtful(RacedTask):
    """Its response interceptor takes two steps."""

    @intercept
    async def think(self, response: Response) -> None:
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()


@define(eq=False)
class Phone:
    """A call that somebody may give up."""

    race: Race
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    heard: str = ""

    async def call(self) -> str:
        """Make the call; what its caller heard, and whether the model had answered when it hung up."""
        world = self.race.world
        with self.scope:
            try:
                assert world.session is not None
                await world.session.turn()
                self.heard = REPLY
            except TurnRefused as refused:
                self.heard = f"refused: {refused.condition}"
            except TaskError:
                self.heard = FAILED
                raise
            except trio.Cancelled:  # nobody has run since the call was hung up
                self.heard = TOO_LATE if "model" in world.ended else IN_TIME
                raise
        return self.heard

    async def hang_up(self) -> None:
        """Give it up, at any moment from the instant on at which the model is about to answer."""
        await trio.sleep(INSTANT)
        await self.race.scheduler.any_moment()
        self.scope.cancel()


async def about_to_answer() -> None:
    """A model that answers one step after the instant."""
    await trio.sleep(INSTANT)
    await trio.lowlevel.checkpoint()


async def raced(race: Race, then: Callable[[Phone], Awaitable[object]]) -> Phone:
    """A segment with one call, which is hung up, and with what its harness does then."""
    phone = Phone(race)

    async def segment() -> None:
        await phone.call()
        await then(phone)

    race.world.script |= {"segment": segment, "model": about_to_answer}

    async def driver() -> bool:
        return await race.rollout.step()

    await race.run(driver=driver, somebody=phone.hang_up)
    return phone


async def stays(phone: Phone) -> None:
    """The harness goes on for as long as anything can happen."""
    await trio.sleep(INSTANT)


@pytest.mark.parametrize("task", [RACED, Thoughtful(prompt="hello")], ids=["plain", "intercepted"])
def test_a_turn_is_committed_exactly_if_the_model_had_answered(every: Every, task: Task) -> None:
    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, task=task) as race:
            phone = await raced(race, stays)
            committed = phone.heard != IN_TIME
            assert race.trace.num_turns == len(race.trace.calls) == committed
            assert race.rollout.state == ("waiting" if committed else "stopped")
            assert race.trace.stop_condition == (None if committed else "no_progress")
            assert (race.trace.errors, race.trace.warnings) == ([], [])
            await race.close()
            return phone.heard

    every(case).expect({REPLY, IN_TIME, TOO_LATE})


def test_a_stop_fires_for_an_answer_that_nobody_waits_for(every: Every) -> None:
    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, task=Stopping(prompt="hello")) as race:
            phone = await raced(race, stays)
            committed = phone.heard != IN_TIME
            assert race.trace.num_turns == committed
            assert race.trace.stop_condition == ("said_enough" if committed else "no_progress")
            assert ("refused" in race.taken) is committed
            assert race.rollout.state == "stopped"
            await race.close()
            return phone.heard

    every(case).expect({"refused: said_enough", IN_TIME, TOO_LATE})


def test_a_hook_that_fails_on_an_answer_that_nobody_waits_for_fails_the_rollout(every: Every) -> None:
    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, task=Failing(prompt="hello")) as race:
            phone = await raced(race, stays)
            failed = phone.heard != IN_TIME
            assert race.trace.num_turns == 0
            assert error_types(race.trace) == ["TaskError"] * failed
            assert race.rollout.state == ("failing" if failed else "stopped")
            await race.close()
            return phone.heard

    every(case).expect({IN_TIME, TOO_LATE, FAILED})


def test_the_end_of_the_segment_cuts_off_what_a_hang_up_does_not(every: Every) -> None:
    """A harness that hangs up and returns at once: the turn is committed whole, or not at all (L24, L33)."""

    async def case(scheduler: Scheduler) -> tuple[str, int]:
        async with racing(scheduler, task=Thoughtful(prompt="hello")) as race:

            async def returns(phone: Phone) -> None:
                return None

            phone = await raced(race, returns)
            turns = race.trace.num_turns
            assert race.rollout.state == ("waiting" if turns else "stopped")
            assert turns == sum(call.node is not None for call in race.trace.calls)
            await race.close()
            return phone.heard, turns

    every(case).expect({(REPLY, 1), (IN_TIME, 0), (TOO_LATE, 0), (TOO_LATE, 1)})


def test_a_deadline_of_the_harness_at_the_instant_of_the_answer(every: Every) -> None:
    """Timer against timer: either task may be the first to run."""

    async def case(scheduler: Scheduler) -> tuple[str, int]:
        async with racing(scheduler) as race:
            phone = Phone(race)

            async def segment() -> None:
                phone.scope.deadline = trio.current_time() + INSTANT
                await phone.call()
                await trio.sleep(INSTANT)

            race.world.script |= {"segment": segment, "model": sleeps(INSTANT)}

            async def driver() -> bool:
                return await race.rollout.step()

            await race.run(driver=driver)
            assert race.rollout.state == ("waiting" if race.trace.num_turns else "stopped")
            await race.close()
            return phone.heard, race.trace.num_turns

    every(case).expect({(IN_TIME, 0), (TOO_LATE, 1)})


@pytest.mark.parametrize("task", [RACED, Thoughtful(prompt="hello")], ids=["plain", "intercepted"])
def test_the_place_of_a_call_that_was_hung_up_is_free_exactly_if_it_commits_nothing(every: Every, task: Task) -> None:
    """One turn is allowed, and the harness calls again at once: there are never two, and never none (L15)."""

    async def case(scheduler: Scheduler) -> tuple[str, str]:
        async with racing(scheduler, task=task, limits=RolloutLimits(max_turns=1)) as race:
            second = Phone(race)

            async def again(_: Phone) -> None:
                await second.call()
                await trio.sleep(INSTANT)

            phone = await raced(race, again)
            assert race.trace.num_turns == 1
            free = phone.heard == IN_TIME
            assert second.heard == (REPLY if free else "refused: max_turns")
            assert race.trace.stop_condition == (None if free else "max_turns")
            await race.close()
            return phone.heard, second.heard

    refused = "refused: max_turns"
    every(case).expect({(REPLY, refused), (TOO_LATE, refused), (IN_TIME, REPLY)})

"""Stop against step: `stop()` at whatever moment before, in, between and after two segments (L16, L17, L22, L24).

Whatever the order: a turn that was admitted before the stop is committed, none is admitted after it, and the rollout is
finalized and scored.
"""

import pytest
import trio

from rollout_fsm import TurnRefused
from tests.schedules.conftest import Every
from tests.schedules.racing import Race, Racer, racing
from tests.schedules.scheduler import Scheduler

SEGMENTS = 2
CONCLUDED = ("closing", "finalizing", "scoring", "releasing", "completed")
Met = tuple[str, int, int]
"""The state in which the stop came, and how many segments had begun and how many turns had been admitted by then."""


async def stopped(race: Race, turns: int, *, parallel: bool = False) -> Met:
    """Two segments of so many turns each, one after the other or at once, a close, and a stop that comes at any
    moment."""
    world, admitted = race.world, 0
    met: Met = ("", 0, 0)

    async def turn() -> None:
        nonlocal admitted
        assert world.session is not None
        admitted += 1  # asking and admitting are one step: nobody comes between this line and the answer
        try:
            await world.session.turn("go on")
        except TurnRefused as refused:
            admitted -= 1
            assert refused.condition == "enough"  # noqa: PT017  (on every way here)

    async def segment() -> None:
        if parallel:
            async with trio.open_nursery() as nursery:
                for number in range(turns):
                    nursery.start_soon(turn, name=f"turn {number}")
        else:
            for _ in range(turns):
                await turn()

    world.script["segment"] = segment

    async def driver() -> list[bool]:
        went = []
        for number in range(SEGMENTS):
            went.append(await race.rollout.step(f"segment {number}"))
            await trio.lowlevel.checkpoint()
        await race.close()
        return went

    async def stopper() -> None:
        nonlocal met
        met = (await race.moment(), world.began.count("segment"), admitted)
        race.rollout.stop("enough")
        race.rollout.stop("another")  # the first wins (L17)

    await race.run(driver=driver, stopper=stopper)
    asked, segments, turns_then = met
    trace = race.trace
    assert (race.rollout.state, trace.errors, trace.warnings, trace.reward) == ("completed", [], [], 1.0)
    if asked in CONCLUDED:  # after the exchange it does nothing (L22)
        assert trace.stop_condition == "user_closed"
        assert race.met["driver"] == [True] * SEGMENTS
    else:
        assert trace.stop_condition == "enough"
        whole = segments - (asked == "stepping")
        assert race.met["driver"] == [True] * whole + [False] * (SEGMENTS - whole)
    assert trace.num_turns == turns_then
    assert world.began.count("segment") == segments
    # a turn that would have come is refused; a segment of which nothing was left to come just ends (L22)
    assert ("refused" in race.taken) is (asked == "stepping" and turns_then < segments * turns)
    return met


@pytest.mark.parametrize("turns", [1, 2])
def test_a_stop_at_any_moment_lets_what_was_admitted_finish_and_nothing_else_begin(every: Every, turns: int) -> None:
    async def case(scheduler: Scheduler) -> Met:
        async with racing(scheduler) as race:
            return await stopped(race, turns)

    rests = {("waiting", segments, segments * turns) for segments in range(SEGMENTS + 1)}
    midway = {
        ("stepping", segments, (segments - 1) * turns + begun)
        for segments in range(1, SEGMENTS + 1)
        for begun in range(1, turns + 1)
    }
    after = {(state, SEGMENTS, SEGMENTS * turns) for state in CONCLUDED}
    every(case).expect(rests | midway | after)


def test_a_stop_among_parallel_turns_splits_them_into_committed_and_refused(every: Every) -> None:
    """Every way to split three turns is reached: the stop comes between their first steps (L24)."""

    async def case(scheduler: Scheduler) -> Met:
        async with racing(scheduler) as race:
            return await stopped(race, 3, parallel=True)

    explored = every(case, ci=130)
    split = {("stepping", 1, admitted) for admitted in range(4)}
    explored.expect(split, allowed=Anything())


class Anything:
    """Allows every outcome: the case judges it."""

    def __contains__(self, outcome: object) -> bool:
        return True


def test_two_stops_and_the_first_one_names_the_condition(every: Every) -> None:
    async def case(scheduler: Scheduler) -> str | None:
        async with racing(scheduler) as race:
            first: list[str] = []

            def stopper(condition: str) -> Racer:
                async def stop() -> None:
                    await race.moment()
                    first.append(condition)
                    race.rollout.stop(condition)

                return stop

            async def driver() -> None:
                await race.rollout.step()

            await race.run(driver=driver, one=stopper("one"), two=stopper("two"))
            assert race.trace.stop_condition == first[0]
            assert race.rollout.state == "stopped"
            await race.close()
            return race.trace.stop_condition

    every(case, ci=80).expect({"one", "two"})


def test_a_stop_at_any_moment_of_an_open_ends_the_exchange_before_its_first_segment(every: Every) -> None:
    """A setup that ends with the stop requested ends in `stopped`; after it the stop ends `waiting` (L22)."""

    async def case(scheduler: Scheduler) -> tuple[str, object]:
        async with racing(scheduler, "created") as race:
            asked = ""

            async def driver() -> object:
                going = await race.rollout.open()
                await trio.lowlevel.checkpoint()
                assert await race.rollout.step() is (race.trace.stop_condition is None or asked in CONCLUDED)
                await race.close()
                return going

            async def stopper() -> None:
                nonlocal asked
                asked = await race.moment()
                race.rollout.stop("enough")

            await race.run(driver=driver, stopper=stopper)
            assert race.rollout.state == "completed"
            return asked, race.met["driver"]

    early = {(state, False) for state in ("created", "booting", "setup")}
    late = {(state, True) for state in ("waiting", "stepping", *CONCLUDED)}
    every(case, ci=80).expect(early | late)

"""Two closers, and three: one of them closes, the others wait for it, and all get the finished trace (L23, L50,
L72)."""

import pytest
import trio

from tests.schedules.conftest import Every
from tests.schedules.racing import CANCELLED, CONCLUDES, Race, Scoped, racing
from tests.schedules.scheduler import Scheduler
from tests.world import sleeps


@pytest.mark.parametrize(
    ("start", "end", "condition"),
    [
        ("created", "aborted", None),
        ("waiting", "completed", "user_closed"),
        ("stopped", "completed", "enough"),
        ("failing", "failed", "error"),
    ],
)
def test_three_closers_close_once_and_get_the_same_trace(
    every: Every, start: str, end: str, condition: str | None
) -> None:
    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, start) as race:

            async def late() -> object:
                state = await race.moment()
                await race.close()
                return state

            await race.run(a=race.close, b=race.close, late=late)
            assert (race.rollout.state, race.trace.stop_condition) == (end, condition)
            assert race.met["a"] is race.met["b"] is race.trace
            assert race.taken.count("close") == 1
            return str(race.met["late"])

    path = {"completed": ["closing", "finalizing", "scoring", "releasing"], "failed": ["discarding"]}.get(end, [])
    every(case, ci=40).expect({start, *path, end})


@pytest.mark.parametrize("turns", [1, 2])
def test_closers_that_come_during_a_segment_wait_for_it(every: Every, turns: int) -> None:
    """The segment ends as if nobody waited: its turns are committed, and `step` says that the exchange can go on."""

    async def case(scheduler: Scheduler) -> object:
        async with racing(scheduler, "waiting") as race:
            race.world.turns = turns

            async def closer() -> str:
                state = await race.moment()
                await race.close()
                return state

            async def driver() -> object:
                return await race.rollout.step()

            await race.run(driver=driver, a=closer, b=closer)
            states = {str(race.met["a"]), str(race.met["b"])}
            assert race.rollout.state == "completed"
            assert race.trace.stop_condition == "user_closed"
            if race.world.began.count("segment"):
                assert race.trace.num_turns == turns
                assert race.taken.index("segment_ended") < race.taken.index("close")
                assert race.met["driver"] is True  # though a closer may close before its caller runs again
            else:  # a closer came first: the step met a close in progress, or its end (L11, L23)
                assert "waiting" in states
                assert race.met["driver"] == "RolloutBusyError"
            return race.met["driver"]

    every(case, ci=80).expect({True, "RolloutBusyError"})


async def closers(race: Race) -> str:
    """Three closers, one of them in a scope that is cancelled at any moment. What decided."""
    began: list[tuple[str, str]] = []

    def closer(name: str) -> Scoped:
        async def close() -> object:
            began.append((name, race.rollout.state))
            return await race.close()

        return Scoped(close)

    racers = {name: closer(name) for name in ("a", "b", "c")}
    asked = ""

    async def canceller() -> None:
        nonlocal asked
        asked = await race.moment()
        racers["c"].scope.cancel()

    await race.run(canceller=canceller, **racers)
    (driver, _), *waiters = began
    others = [race.met[name] for name in ("a", "b")]
    assert others == [race.trace, race.trace]
    assert all(state not in ("waiting", "failing") for _, state in waiters)
    if driver == "c" and CONCLUDES.get(asked) is None:
        assert race.rollout.state == "aborted"  # the one that drives is cancelled, and the others get that (L72)
        assert race.met["c"] is CANCELLED
        return "the driver was cancelled"
    assert race.rollout.state == "completed"  # a cancellation of a waiter is only its own (L23)
    if driver == "c":
        assert race.met["c"] is race.trace
        return "too late"
    assert race.met["c"] in (race.trace, CANCELLED)
    return "a waiter was cancelled" if race.met["c"] is CANCELLED else "a waiter was not cancelled"


def test_a_cancelled_waiter_cancels_nobody_else_and_a_cancelled_closer_aborts(every: Every) -> None:
    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, "waiting") as race:
            return await closers(race)

    every(case, ci=140).expect(
        {"the driver was cancelled", "too late", "a waiter was cancelled", "a waiter was not cancelled"}
    )


def test_closers_that_meet_an_abort_wait_for_its_end(every: Every) -> None:
    """Another task aborts while two close, or the other way round: both closers return the trace (L72)."""

    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, "waiting") as race:
            asked = ""

            async def canceller() -> None:
                nonlocal asked
                asked = await race.moment()
                await race.rollout.cancel()
                assert race.rollout.is_final

            async def late() -> object:
                await race.moment()
                return await race.close()

            await race.run(a=race.close, canceller=canceller, late=late)
            assert race.met["a"] is race.met["late"] is race.trace
            assert race.rollout.state == CONCLUDES.get(asked, "aborted")
            return race.rollout.state

    every(case, ci=80).expect({"aborted", "completed"})


def test_a_closer_that_waits_for_a_segment_is_not_kept_by_a_step_that_follows_it(every: Every) -> None:
    """The driver steps again and again while another task waits to close: it closes between two segments, or after the
    last one, and the driver is told (L11, L23)."""

    async def case(scheduler: Scheduler) -> tuple[object, int]:
        async with racing(scheduler, "waiting") as race:

            async def driver() -> object:
                for segment in ("one", "two"):
                    await race.rollout.step(segment)
                    await trio.lowlevel.checkpoint()
                return "two segments"

            async def closer() -> object:
                await race.moment()
                return await race.close()

            await race.run(driver=driver, closer=closer)
            assert race.rollout.state == "completed"
            assert race.trace.num_turns == race.world.began.count("segment")
            assert (race.met["driver"] == "two segments") is (race.trace.num_turns == 2)
            return race.met["driver"], race.trace.num_turns

    raised = ("RolloutBusyError", "IllegalTransition")
    every(case).expect(
        {("RolloutBusyError", 0), ("RolloutBusyError", 1), ("two segments", 2)},
        allowed={("two segments", 2), *((met, turns) for met in raised for turns in (0, 1))},
    )


def test_who_waits_for_a_close_sleeps_until_it_is_over(every: Every) -> None:
    """Nobody looks again and again: virtual time passes, in which nothing runs."""

    async def case(scheduler: Scheduler) -> float:
        async with racing(scheduler, "waiting") as race:
            race.world.script["finalize"] = sleeps(5)
            await race.run(a=race.close, b=race.close, c=race.close)
            assert race.rollout.state == "completed"
            return trio.current_time()

    every(case, ci=30).expect({5.0})

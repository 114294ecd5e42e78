"""Cancel against open and step: another task cancels at whatever moment of a whole rollout, and its driver, who has
done nothing wrong, is never raised at (L11, L23, L72)."""

import pytest
import trio

from rollout_fsm import RolloutTimeouts
from tests.schedules.conftest import Every
from tests.schedules.racing import CONCLUDES, racing
from tests.schedules.scheduler import Scheduler

SEGMENTS = 2
BEFORE = ["created", "booting", "setup"]
DURING = ["waiting", "stepping"]
AFTER = ["closing", "finalizing", "scoring", "releasing", "completed"]


def test_the_driver_of_a_cancelled_rollout_is_told_no_and_gets_the_trace(every: Every) -> None:
    """The verb that was pending returns False, those that follow too, whether the release still runs or is over."""

    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, "created") as race:
            going: list[bool] = []
            asked, done = "", 0

            async def driver() -> object:
                going.append(await race.rollout.open())
                for segment in range(SEGMENTS):
                    await trio.lowlevel.checkpoint()
                    going.append(await race.rollout.step(f"segment {segment}"))
                await trio.lowlevel.checkpoint()
                return await race.close()

            async def canceller() -> None:
                nonlocal asked, done
                asked, done = await race.moment(), len(going)
                await race.rollout.cancel()
                assert race.rollout.is_final

            await race.run(canceller=canceller, driver=driver)
            assert race.met["driver"] is race.trace
            assert race.rollout.state == CONCLUDES.get(asked, "aborted")
            assert going == [True] * done + [False] * (SEGMENTS + 1 - done)
            assert race.trace.errors == []
            return asked

    every(case, ci=100).expect({*BEFORE, *DURING, *AFTER})


@pytest.mark.parametrize("event", ["runtime.start", "harness.setup", "session.open", "segment", "model"])
def test_what_would_hang_is_interrupted_whoever_comes_first(every: Every, event: str) -> None:
    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, "created", timeouts=RolloutTimeouts(agent=600)) as race:
            race.world.script[event] = trio.sleep_forever
            asked = ""

            async def driver() -> tuple[bool, bool]:
                return await race.rollout.open(), await race.rollout.step()

            async def canceller() -> None:
                nonlocal asked
                asked = await race.moment()
                await race.rollout.cancel()

            await race.run(canceller=canceller, driver=driver)
            assert race.rollout.state == "aborted"
            assert race.trace.stop_condition == "cancelled"
            assert race.trace.errors == []
            assert trio.current_time() == 0
            assert race.met["driver"] == (asked == "stepping", False)
            return asked

    path = {"runtime.start": BEFORE[:2], "harness.setup": BEFORE, "session.open": BEFORE}.get(
        event, [*BEFORE, "stepping"]
    )
    every(case, ci=40).expect(path)

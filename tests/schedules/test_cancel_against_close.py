"""Cancel against close: whoever cancels, at whatever moment of a close, by `cancel()` or through the closer's own scope
(L50, L70-L72)."""

import pytest
import trio

from tests.schedules.conftest import Every
from tests.schedules.racing import CANCELLED, CONCLUDES, Scoped, racing
from tests.schedules.scheduler import Scheduler
from tests.world import kinds

PATHS = {
    "created": ["created", "aborted"],
    "waiting": ["waiting", "closing", "finalizing", "scoring", "releasing", "completed"],
    "stopped": ["stopped", "closing", "finalizing", "scoring", "releasing", "completed"],
    "failing": ["failing", "discarding", "failed"],
}
"""Where a close begins, and the states that it passes if nobody cancels."""
CLOSED = {"created": None, "waiting": "user_closed", "stopped": "enough", "failing": "error"}
"""The stop condition that stands once the close has begun (L17, L53)."""
Ended = tuple[str, str]
"""The state in which the cancellation came, and the one in which the rollout ended."""


def legal(start: str, means: str, asked: str) -> str:
    """Where it ends: a cancellation wins until the release of a finished or a failed run has begun (L71).

    A scope that is cancelled before its task has begun to close is met in the first state of the close, not before.
    """
    if means == "scope" and asked == start:
        asked = PATHS[start][1]
    return CONCLUDES.get(asked, "aborted")


@pytest.mark.parametrize("means", ["cancel", "scope"])
@pytest.mark.parametrize("start", PATHS)
def test_a_close_that_is_cancelled_ends_as_the_state_says_in_which_that_came(
    every: Every, start: str, means: str
) -> None:
    async def case(scheduler: Scheduler) -> Ended:
        async with racing(scheduler, start) as race:
            rollout, closer, asked = race.rollout, Scoped(race.close), ""

            async def canceller() -> None:
                nonlocal asked
                asked = await race.moment()
                if means == "scope":
                    closer.scope.cancel()
                else:
                    await rollout.cancel()
                    assert rollout.is_final  # L72

            await race.run(closer=closer, canceller=canceller)
            end = legal(start, means, asked)
            assert rollout.state == end
            raises = means == "scope" and end == "aborted" and start != "created"
            assert race.met["closer"] is (CANCELLED if raises else race.trace)
            untouched = means == "cancel" and asked == start and CLOSED[start] in (None, "user_closed")
            assert race.trace.stop_condition == ("cancelled" if untouched else CLOSED[start])
            closes = "closing" in PATHS[start]
            assert ("finalize" in race.world.began) is (closes and asked not in (start, "closing"))  # before it starts
            if asked != "scoring":  # there the signals that had returned are kept (L63)
                assert race.trace.reward == (1.0 if end == "completed" else None)
            return asked, rollout.state

    explored = every(case)
    explored.expect({(asked, legal(start, means, asked)) for asked in PATHS[start]})


@pytest.mark.parametrize("start", ["waiting", "failing"])
def test_of_two_cancellations_the_first_that_counts_decides(every: Every, start: str) -> None:
    async def case(scheduler: Scheduler) -> str:
        async with racing(scheduler, start) as race:
            closer = Scoped(race.close)
            asked: list[tuple[str, str]] = []

            async def by_scope() -> None:
                asked.append(("scope", await race.moment()))
                closer.scope.cancel()

            async def by_cancel() -> None:
                asked.append(("cancel", await race.moment()))
                await race.rollout.cancel()

            await race.run(closer=closer, by_scope=by_scope, by_cancel=by_cancel)
            ends = [legal(start, means, when) for means, when in asked if when not in ("aborting", "aborted")]
            assert race.rollout.state == ("aborted" if "aborted" in ends else ends[0])
            assert race.met["closer"] in (race.trace, CANCELLED)
            return race.rollout.state

    every(case, ci=60).expect({"aborted", PATHS[start][-1]})


@pytest.mark.parametrize(
    ("event", "state", "warning"),
    [
        ("session.close", "closing", "close"),
        ("harness.cleanup", "releasing", "cleanup"),
        ("runtime.stop", "releasing", "leaked"),
    ],
)
def test_a_cancellation_during_a_release_step_that_hangs_is_no_reason_to_wait_longer(
    every: Every, event: str, state: str, warning: str
) -> None:
    """The cancellation comes at any moment from the instant on at which the bound of the step has passed (L55, L71)."""

    async def case(scheduler: Scheduler) -> Ended:
        async with racing(scheduler, "waiting") as race:
            race.world.script[event] = trio.sleep_forever
            asked = ""

            async def canceller() -> None:
                nonlocal asked
                await trio.sleep(60)
                asked = await race.moment()
                await race.rollout.cancel()

            await race.run(closer=race.close, canceller=canceller)
            assert race.rollout.state == CONCLUDES.get(asked, "aborted")
            assert race.met["closer"] is race.trace
            assert kinds(race.trace) == [warning]
            assert trio.current_time() == 60
            return asked, race.rollout.state

    later = PATHS["waiting"][PATHS["waiting"].index(state) :]
    every(case).expect({(asked, CONCLUDES.get(asked, "aborted")) for asked in later})


@pytest.mark.parametrize("means", ["cancel", "scope"])
@pytest.mark.parametrize(("event", "state"), [("finalize", "finalizing"), ("score.good", "scoring")])
def test_a_close_that_would_hang_is_ended_at_once(every: Every, event: str, state: str, means: str) -> None:
    """Nobody waits for a bound: the cancellation interrupts what hangs, at whatever moment it came (L70)."""

    async def case(scheduler: Scheduler) -> Ended:
        async with racing(scheduler, "waiting") as race:
            race.world.script[event] = trio.sleep_forever
            closer, asked = Scoped(race.close), ""

            async def canceller() -> None:
                nonlocal asked
                asked = await race.moment()
                if means == "scope":
                    closer.scope.cancel()
                else:
                    await race.rollout.cancel()

            await race.run(closer=closer, canceller=canceller)
            assert trio.current_time() == 0
            assert (race.trace.errors, race.trace.warnings, race.trace.reward) == ([], [], None)
            return asked, race.rollout.state

    path = PATHS["waiting"]
    every(case).expect({(asked, "aborted") for asked in path[: path.index(state) + 1]})

"""Fail against finish: the owner reports a failure at whatever moment of the rollout's last steps (L23, L43)."""

import pytest
import trio

from tests.schedules.conftest import Every
from tests.schedules.racing import Race, Racer, racing
from tests.schedules.scheduler import Scheduler
from tests.world import error_types

RESTING = ("created", "waiting", "stopped")
BUSY = "RolloutBusyError"
Met = tuple[str, object, str]
"""The state in which it was reported, what that met, and where the rollout ended."""


class Reported(Exception):  # noqa: N818
    """What the owner of a rollout reports."""


def judged(race: Race, asked: str, met: object, *, otherwise: str) -> Met:
    """What became of the report, held against the rule for the state in which it came."""
    recorded = asked in (*RESTING, "failing")
    if recorded or asked in ("aborting", "completed", "failed", "aborted"):
        assert met == "taken"  # recorded at rest; in the others only logged
    else:
        assert met == BUSY
    assert ("Reported" in error_types(race.trace)) is recorded
    if asked in RESTING:
        assert race.trace.errors[0].type == "Reported"  # under its own type, and the primary cause
        assert "errored" in race.taken
    assert race.rollout.state == ("failed" if recorded else otherwise)
    assert race.trace.reward == (1.0 if race.rollout.state == "completed" else None)
    return asked, met, race.rollout.state


def owner(race: Race, asked: list[str]) -> Racer:
    async def fail() -> str:
        asked.append(await race.moment())
        race.rollout.fail(Reported("the judge is gone"))
        return "taken"

    return fail


@pytest.mark.parametrize("pause", [True, False], ids=["with a pause", "at once"])
def test_a_failure_reported_while_the_driver_steps_and_closes(every: Every, pause: bool) -> None:
    """Without a pause nobody can come between the step's end and the close: `waiting` is met before the step only."""

    async def case(scheduler: Scheduler) -> tuple[str, object]:
        async with racing(scheduler, "waiting") as race:
            asked: list[str] = []

            async def driver() -> object:
                going = await race.rollout.step()
                if pause:
                    await trio.lowlevel.checkpoint()
                await race.close()
                return going

            await race.run(driver=driver, owner=owner(race, asked))
            going = race.met["driver"]
            assert going is ("segment" in race.world.began)  # a step after the failure does nothing (L11)
            judged(race, asked[0], race.met["owner"], otherwise="completed")
            return asked[0], going

    later = ["stepping", "closing", "finalizing", "scoring", "releasing", "completed"]
    every(case).expect({("waiting", False), *((state, True) for state in later), *([("waiting", True)] * pause)})


@pytest.mark.parametrize(
    ("start", "end"),
    [("created", "aborted"), ("stopped", "completed"), ("failing", "failed"), ("waiting", "completed")],
)
def test_a_failure_reported_while_the_driver_closes(every: Every, start: str, end: str) -> None:
    async def case(scheduler: Scheduler) -> Met:
        async with racing(scheduler, start) as race:
            asked: list[str] = []
            await race.run(driver=race.close, owner=owner(race, asked))
            assert race.met["driver"] is race.trace
            return judged(race, asked[0], race.met["owner"], otherwise=end)

    path = {"completed": ["closing", "finalizing", "scoring", "releasing"], "failed": ["discarding"]}.get(end, [])
    every(case).expect({(start, "taken", "failed"), *((state, BUSY, end) for state in path), (end, "taken", end)})


def test_a_failure_reported_while_another_task_aborts_is_only_logged(every: Every) -> None:
    async def case(scheduler: Scheduler) -> Met:
        async with racing(scheduler, "waiting") as race:
            asked: list[str] = []
            await race.run(aborter=race.rollout.cancel, owner=owner(race, asked))
            if asked == ["waiting"]:
                assert error_types(race.trace) == ["Reported"]
                assert race.rollout.state == "aborted"
                return "waiting", race.met["owner"], "aborted"
            return judged(race, asked[0], race.met["owner"], otherwise="aborted")

    every(case).expect({(state, "taken", "aborted") for state in ("waiting", "aborting", "aborted")})


def test_two_failures_at_once_are_both_recorded_and_the_first_is_the_primary_cause(every: Every) -> None:
    async def case(scheduler: Scheduler) -> tuple[str, ...]:
        async with racing(scheduler, "waiting") as race:
            asked: list[str] = []

            async def other() -> str:
                asked.append(await race.moment())
                race.rollout.fail(ValueError("another"))
                return "taken"

            async def driver() -> None:
                await trio.lowlevel.checkpoint()
                await race.close()

            await race.run(driver=driver, owner=owner(race, asked), other=other)
            errors = error_types(race.trace)
            assert len(errors) == sum(state in ("waiting", "failing") for state in asked)
            assert race.rollout.state == ("failed" if errors else "completed")
            return tuple(errors)

    alone = {(), ("Reported",), ("ValueError",)}
    every(case, ci=90).expect({*alone, ("Reported", "ValueError"), ("ValueError", "Reported")})


def test_a_failure_reported_at_any_moment_of_an_open(every: Every) -> None:
    """Before it, the rollout fails without a box; in it, the owner is told that a call is in progress (L23)."""

    async def case(scheduler: Scheduler) -> Met:
        async with racing(scheduler, "created") as race:
            asked: list[str] = []

            async def driver() -> object:
                try:
                    return await race.rollout.open()
                finally:
                    await race.close()

            await race.run(driver=driver, owner=owner(race, asked))
            if asked == ["created"]:
                assert "runtime.start" not in race.world.began
                assert race.met["driver"] == "IllegalTransition"  # an `open` after the first fire (L11)
            return judged(race, asked[0], race.met["owner"], otherwise="completed")

    busy = ("booting", "setup", "closing", "finalizing", "scoring", "releasing")
    every(case, ci=90).expect(
        {
            ("created", "taken", "failed"),
            *((state, BUSY, "completed") for state in busy),
            ("completed", "taken", "completed"),
        }
    )

"""The search for schedules itself: it visits each one once, finds those that break a racy program, and reports the
simplest of them so that a person can read it."""

import itertools
import math
from random import Random

import pytest
import trio
import trio._core._run
from attrs import define, field

from tests.schedules.conftest import Every
from tests.schedules.every_schedule import Case, Explored, ScheduleFailed, explore, replay, shrink
from tests.schedules.scheduler import Scheduler, scheduled_by


@define(eq=False)
class Account:
    """Money for one. Whoever looks, waits, and then takes, may take what another has taken meanwhile."""

    careful: bool
    left: int = 1
    visits: list[str] = field(factory=list)

    async def take(self, who: str) -> None:
        self.visits.append(who)
        if self.left > 0:
            if not self.careful:
                await trio.lowlevel.checkpoint()
            self.left -= 1


def in_step(*, takers: int, steps: int = 0) -> Case[tuple[str, ...]]:
    """Tasks that take so many steps side by side and then visit an account; the order of their visits."""

    async def case(scheduler: Scheduler) -> tuple[str, ...]:
        account = Account(careful=True)

        async def visit(who: str) -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            await account.take(who)

        with scheduler.free():
            async with trio.open_nursery() as nursery:
                for who in "abcd"[:takers]:
                    nursery.start_soon(visit, who, name=who)
        return tuple(account.visits)

    return case


async def withdrawals(scheduler: Scheduler, account: Account) -> int:
    """Two visit the account, at any moments; what is left in it."""

    async def visit(who: str) -> None:
        await scheduler.any_moment()
        await account.take(who)
        await trio.lowlevel.checkpoint()

    with scheduler.free():
        async with trio.open_nursery() as nursery:
            for who in ("ann", "bob"):
                nursery.start_soon(visit, who, name=who)
    return account.left


def checked(*, careful: bool) -> Case[int]:
    """The visits, with the account looked at afterwards."""

    async def case(scheduler: Scheduler) -> int:
        left = await withdrawals(scheduler, Account(careful=careful))
        assert left == 0, f"{left} left of 1"
        return left

    return case


async def unchecked(scheduler: Scheduler) -> int:
    return await withdrawals(scheduler, Account(careful=False))


def failure_of(case: Case[int], *, limit: int | None = None) -> ScheduleFailed:
    with pytest.raises(ScheduleFailed) as caught:
        explore(case, limit=limit)
    return caught.value


# ---- what is visited


@pytest.mark.parametrize(("takers", "steps"), [(1, 2), (2, 0), (2, 3), (3, 0), (3, 1), (4, 0)])
def test_every_order_of_tasks_that_run_in_step_is_visited_once(takers: int, steps: int) -> None:
    explored = explore(in_step(takers=takers, steps=steps))
    assert explored.exhaustive
    assert explored.schedules == math.factorial(takers) ** (steps + 1)
    explored.expect(itertools.permutations("abcd"[:takers]))


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_who_may_come_at_any_moment_comes_before_during_and_after_each_step_of_another(steps: int) -> None:
    async def case(scheduler: Scheduler) -> tuple[int, bool]:
        taken, came = 0, (0, False)

        async def walk() -> None:
            nonlocal taken
            for _ in range(steps):
                taken += 1
                await trio.lowlevel.checkpoint()
            taken += 1

        async def come() -> None:
            nonlocal came
            await scheduler.any_moment()
            came = taken, trio.current_time() == 0

        with scheduler.free():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(walk)
                nursery.start_soon(come)
        return came

    explored = explore(case)
    explored.expect({(moment, True) for moment in range(steps + 2)})
    assert explored.exhaustive


def test_two_who_may_come_at_any_moment_come_in_every_combination() -> None:
    async def case(scheduler: Scheduler) -> tuple[str, ...]:
        order: list[str] = []

        async def walk() -> None:
            for step in "1":
                order.append(step)
                await trio.lowlevel.checkpoint()

        async def come(who: str) -> None:
            await scheduler.any_moment()
            order.append(who)

        with scheduler.free():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(walk)
                nursery.start_soon(come, "a")
                nursery.start_soon(come, "b")
        return tuple(order)

    explore(case).expect(itertools.permutations("1ab"))


def test_time_stands_still_while_somebody_has_yet_to_come() -> None:
    async def case(scheduler: Scheduler) -> float:
        async def come() -> float:
            await scheduler.any_moment()
            return trio.current_time()

        with scheduler.free():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 5)
                came = await come()
        return came

    explore(case).expect({0.0})


def test_outside_of_the_free_block_nothing_is_chosen() -> None:
    async def case(scheduler: Scheduler) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            nursery.start_soon(trio.sleep, 1)
            await scheduler.any_moment()
        return "done"

    explored = explore(case)
    assert (explored.schedules, explored.exhaustive) == (1, True)
    assert replay(case, ()).sizes == ()


def test_a_limited_search_takes_the_simplest_schedules_and_some_at_random_and_is_the_same_each_time() -> None:
    first, second = (explore(in_step(takers=3, steps=3), limit=80) for _ in range(2))
    assert first == second
    assert not first.exhaustive
    assert first.by_deviations[0] == 1
    assert first.by_deviations[1] == 4 * (2 + 1)
    assert 70 < first.schedules <= 80
    assert first.at_random == first.schedules - 60
    assert str(first).startswith(f"{first.schedules} schedules (by deviations: 1 of 0, 12 of 1, 47 of 2; ")


def test_a_limit_above_the_number_of_schedules_is_none() -> None:
    assert explore(in_step(takers=3), limit=100) == explore(in_step(takers=3))
    assert str(explore(in_step(takers=3), limit=100)) == "all 6 schedules, 6 outcomes"


# ---- what is found


def test_a_program_that_looks_and_takes_in_one_step_passes_every_schedule() -> None:
    explored = explore(checked(careful=True))
    explored.expect({0})
    assert explored.exhaustive
    assert explored.schedules > 20


def test_a_program_that_looks_waits_and_takes_fails_and_the_report_can_be_read_and_replayed() -> None:
    case = checked(careful=False)
    failed = failure_of(case)
    again = replay(case, failed.schedule)
    assert isinstance(again.error, AssertionError)
    assert str(again.error).startswith("-1 left of 1")
    assert again.deviations == 2  # one of them comes while the other waits, and is the first to go on
    report = str(failed)
    assert f"schedule {list(failed.schedule)} fails (2 deviations; " in report
    assert f"SCHEDULE={','.join(map(str, failed.schedule))} in the environment" in report
    assert "AssertionError: -1 left of 1" in report
    assert report.count("(a deviation)") == 2
    told = [line.strip() for line in report.splitlines()]
    waiting = [line for line in told if line.startswith(("ann waits in visit:", "bob waits in visit:"))]
    assert any(" > take:" in line for line in waiting)
    assert {"ann ends", "bob ends"} <= set(told)


def test_what_is_reported_has_the_fewest_deviations_of_all_that_fail() -> None:
    broken = {outcome: schedule for outcome, schedule in explore(unchecked).outcomes.items() if outcome < 0}
    fewest = min(sum(map(bool, schedule)) for schedule in broken.values())
    assert sum(map(bool, failure_of(checked(careful=False)).schedule)) == fewest


@pytest.mark.parametrize("seed", range(3))
def test_a_failing_schedule_that_was_drawn_at_random_shrinks_to_the_fewest_deviations(seed: int) -> None:
    case, random = checked(careful=False), Random(seed)
    failing = next(run for run in iter(lambda: replay(case, (), drawn=random), None) if run.error is not None)
    smallest = shrink(case, failing)
    assert isinstance(smallest.error, AssertionError)
    assert smallest.deviations == 2 <= failing.deviations


def test_a_program_that_hangs_in_one_order_only_is_found() -> None:
    async def case(scheduler: Scheduler) -> str:
        rung = trio.Event()

        async def ring() -> None:
            await scheduler.any_moment()
            rung.set()

        async def listen() -> None:
            nonlocal rung
            rung = trio.Event()
            await rung.wait()

        with scheduler.free():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                nursery.start_soon(ring)
        return "rung"

    failed = failure_of(case)  # type: ignore[arg-type]
    assert isinstance(failed.__cause__, trio.TooSlowError)
    assert sum(map(bool, failed.schedule)) == 2  # the bell is first, and rings at once


def test_a_program_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.schedules.scheduler.ENDLESS", 50)

    async def case(scheduler: Scheduler) -> int:
        while True:
            await trio.lowlevel.checkpoint()

    run = replay(case, ())
    assert isinstance(run.error, RuntimeError)
    assert "never ends" in str(run.error)


def test_a_program_that_is_not_the_same_each_time_is_refused() -> None:
    runs = itertools.count(2)

    async def case(scheduler: Scheduler) -> int:
        with scheduler.free():
            async with trio.open_nursery() as nursery:
                for _ in range(5 - next(runs)):
                    nursery.start_soon(trio.lowlevel.checkpoint)
        return 0

    with pytest.raises(AssertionError, match="not deterministic"):
        explore(case)


# ---- what is said


def test_an_outcome_that_is_not_allowed_and_one_that_is_never_reached_fail() -> None:
    explored: Explored[tuple[str, ...]] = explore(in_step(takers=2))
    with pytest.raises(AssertionError, match=r"no rule allows.*\('b', 'a'\): \(1,\)"):
        explored.expect([("a", "b")])
    with pytest.raises(AssertionError, match=r"all 2 schedules, 2 outcomes never came to \{\('c',\)\}"):
        explored.expect([("a", "b"), ("b", "a"), ("c",)])
    explored.expect([("a", "b")], allowed=[("a", "b"), ("b", "a")])


def test_one_schedule_that_the_environment_names_is_the_only_one_and_is_told(
    monkeypatch: pytest.MonkeyPatch, every: Every
) -> None:
    failed = failure_of(checked(careful=False))
    monkeypatch.setenv("SCHEDULE", ",".join(map(str, failed.schedule)))
    with pytest.raises(ScheduleFailed) as again:
        every(checked(careful=False))
    assert again.value.schedule == failed.schedule
    with pytest.raises(pytest.fail.Exception, match=r"it did not fail, and came to:\n0\n(.*\n)+bob ends"):
        every(checked(careful=True))


# ---- trio's own names


def test_trios_scheduler_is_as_it_was_afterwards() -> None:
    run = trio._core._run
    before = run._r, run._ALLOW_DETERMINISTIC_SCHEDULING
    failure_of(checked(careful=False))
    assert (run._r, run._ALLOW_DETERMINISTIC_SCHEDULING) == before


@pytest.mark.parametrize("name", ["_r", "_ALLOW_DETERMINISTIC_SCHEDULING"])
def test_a_trio_without_the_private_names_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(trio._core._run, name)
    with pytest.raises(AssertionError, match=f"has no trio._core._run.{name}"), scheduled_by(Scheduler()):
        pass

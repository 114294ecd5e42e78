"""At one instant: triggers first, then scripted code; and what is over when it is interrupted has ended by itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from rollout_fsm.simulation.timeline import Timeline
from rollout_fsm.simulation.trigger import Phase, Seconds, Trigger


@asynccontextmanager
async def a_timeline() -> AsyncIterator[Timeline]:
    async with trio.open_nursery() as nursery:
        yield Timeline(nursery)
        nursery.cancel_scope.cancel()


def at(time: float) -> Trigger:
    return Trigger(time=Seconds(time))


async def test_a_trigger_acts_before_code_that_ends_at_its_instant() -> None:
    async with a_timeline() as timeline:
        order: list[str] = []
        timeline.plan(at(3), lambda: order.append("trigger"))
        await timeline.spend(3)
        order.append("code")
        assert order == ["trigger", "code"]


async def test_a_trigger_acts_before_code_that_is_interrupted_at_its_instant() -> None:
    async with a_timeline() as timeline:
        order: list[str] = []
        timeline.plan(at(3), lambda: order.append("trigger"))
        with trio.move_on_at(3):
            try:
                await timeline.spend(10)
            except trio.Cancelled:
                order.append("code")
                raise
        assert order == ["trigger", "code"]


async def test_a_trigger_acts_also_when_no_code_ends() -> None:
    async with a_timeline() as timeline:
        times: list[float] = []
        timeline.plan(at(3), lambda: times.append(timeline.now))
        await timeline.spend(5)
        assert times == [3]


async def test_triggers_of_one_instant_act_in_the_order_in_which_they_were_planned() -> None:
    async with a_timeline() as timeline:
        order: list[int] = []
        for number in range(5):
            timeline.plan(at(2), lambda number=number: order.append(number))  # type: ignore[misc]
        await timeline.spend(2)
        assert order == [0, 1, 2, 3, 4]


async def test_a_phase_counts_when_it_is_entered_for_the_first_time() -> None:
    async with a_timeline() as timeline:
        times: list[float] = []
        timeline.plan(Trigger(phase=Phase("setup"), after=Seconds(4)), lambda: times.append(timeline.now))
        await timeline.spend(1)
        timeline.enter("setup")
        await timeline.spend(1)
        timeline.enter("setup")
        await timeline.spend(10)
        assert times == [5]


async def test_what_is_over_when_it_is_interrupted_has_ended_by_itself() -> None:
    async with a_timeline() as timeline:
        with trio.CancelScope() as scope:
            timeline.plan(at(3), scope.cancel)
            await timeline.spend(3)
            ended = timeline.now
        assert ended == 3
        assert scope.cancel_called
        assert not scope.cancelled_caught


async def test_nothing_to_wait_for_is_not_interrupted() -> None:
    async with a_timeline() as timeline:
        with trio.CancelScope() as scope:
            scope.cancel()
            await timeline.spend(0)
        assert not scope.cancelled_caught


async def test_an_interruption_ends_it_early() -> None:
    async with a_timeline() as timeline:
        with trio.move_on_after(2) as scope:
            await timeline.spend(float("inf"))
        assert scope.cancelled_caught
        assert timeline.now == 2


async def test_an_interruption_that_is_ignored_ends_it_early_all_the_same() -> None:
    async with a_timeline() as timeline:
        with trio.move_on_after(2) as scope:
            await timeline.spend(10, ignore_cancel=True)
            assert timeline.now == 2
        assert not scope.cancelled_caught


async def test_tenths_of_seconds_meet_where_a_reader_expects_them_to() -> None:
    async with a_timeline() as timeline:
        order: list[str] = []
        timeline.plan(at(0.3), lambda: order.append("trigger"))
        with trio.move_on_at(0.3) as scope:
            await timeline.spend(0.1)
            await timeline.spend(0.2)
            order.append("code")
        assert order == ["trigger", "code"]
        assert trio.current_time() >= scope.deadline


async def test_another_tasks_calls_begin_in_order_and_before_code_goes_on() -> None:
    async with a_timeline() as timeline:
        order: list[int | str] = []

        def call(number: int) -> None:
            async def work() -> None:
                order.append(number)
                await trio.sleep(1)

            timeline.call(work)

        for number in range(5):
            timeline.plan(at(2), lambda number=number: call(number))  # type: ignore[misc]
        await timeline.spend(2)
        order.append("code")
        assert order == [0, 1, 2, 3, 4, "code"]


async def test_an_alarm_rings_unless_its_block_was_left() -> None:
    async with a_timeline() as timeline:
        rung: list[float] = []
        with timeline.alarm(3, lambda: rung.append(timeline.now)):
            await timeline.spend(2)
        await timeline.spend(5)
        assert rung == []
        with timeline.alarm(3, lambda: rung.append(timeline.now)):
            await timeline.spend(5)
        assert rung == [10]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_is_on_stage_is_known(fails: bool) -> None:
    async with a_timeline() as timeline:
        with pytest.raises(ValueError) if fails else timeline.on_stage("around"), timeline.on_stage("finalize"):  # noqa: PT011
            assert "finalize" in timeline.running
            if fails:
                raise ValueError
        assert timeline.running == []

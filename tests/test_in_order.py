"""Many at once, handed on in order."""

from collections.abc import Iterator
from itertools import count

import pytest
import trio

from rollout_fsm.in_order import AHEAD, in_order


class MineError(Exception):
    """Somebody else's."""


async def nothing(_: object) -> None:
    await trio.lowlevel.checkpoint()


async def test_results_come_in_the_order_of_the_items_whatever_finishes_first() -> None:
    came: list[float] = []

    async def deliver(result: float) -> None:
        came.append(result)

    async def work(item: float) -> float:
        await trio.sleep(item)
        return item

    await in_order([5, 1, 3, 0, 2], work, deliver, max_concurrent=5)
    assert came == [5, 1, 3, 0, 2]
    assert trio.current_time() < 6


@pytest.mark.parametrize("most", [1, 2, 7])
async def test_no_more_are_worked_on_at_once_than_allowed(most: int) -> None:
    running = peak = 0

    async def work(item: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await trio.sleep(1)
        running -= 1
        return item

    await in_order(range(20), work, nothing, max_concurrent=most)
    assert (peak, running) == (most, 0)


async def test_an_item_is_asked_for_only_when_there_is_room_so_that_memory_is_bounded() -> None:
    asked = delivered = most = 0

    def items() -> Iterator[int]:
        nonlocal asked
        for item in range(200):
            asked += 1
            yield item

    async def work(item: int) -> int:
        await trio.sleep(1000 if item == 0 else 1)  # a slow first one holds up the delivery, not the work
        return item

    async def deliver(_: int) -> None:
        nonlocal delivered, most
        most = max(most, asked - delivered)
        delivered += 1

    await in_order(items(), work, deliver, max_concurrent=3)
    assert delivered == 200
    assert most == 3 * AHEAD


async def test_what_the_items_raise_comes_bare_after_everything_before_it() -> None:
    came: list[int] = []

    def items() -> Iterator[int]:
        yield from (1, 2, 3)
        raise MineError

    async def work(item: int) -> int:
        await trio.sleep(10 - item)
        return item

    async def deliver(result: int) -> None:
        came.append(result)

    with pytest.raises(MineError):
        await in_order(items(), work, deliver, max_concurrent=2)
    assert came == [1, 2, 3]


@pytest.mark.parametrize("culprit", ["work", "deliver"])
async def test_what_work_or_deliver_raises_ends_everything_and_comes_bare(culprit: str) -> None:
    began = ended = 0

    async def work(item: int) -> int:
        nonlocal began, ended
        began += 1
        try:
            await trio.sleep(1 if item < 3 else 1000)
            if culprit == "work" and item == 2:
                raise MineError
        finally:
            ended += 1
        return item

    async def deliver(result: int) -> None:
        if culprit == "deliver" and result == 1:
            raise MineError

    with pytest.raises(MineError):
        await in_order(count(), work, deliver, max_concurrent=4)
    assert trio.current_time() < 1000
    assert began == ended >= 4


async def test_a_cancellation_ends_it_between_two_deliveries() -> None:
    came: list[int] = []

    async def work(item: int) -> int:
        await trio.sleep(item)
        return item

    async def deliver(result: int) -> None:
        came.append(result)

    with trio.move_on_after(3.5) as scope:
        await in_order(count(), work, deliver, max_concurrent=4)
    assert scope.cancelled_caught
    assert came == [0, 1, 2, 3]


async def test_nothing_gives_nothing() -> None:
    await in_order([], nothing, nothing, max_concurrent=1)

"""Many at once, handed on in the order in which they came: for what is read from one file and written to another.

At most so many are worked on at once, and a few times as many results wait for an earlier one, so memory does not grow
with the number of items. Everything runs inside the call; nothing outlives it.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

import trio
from attrs import define, field

from rollout_fsm.attempt import Attempt, attempt
from rollout_fsm.outcome import interrupts, plain

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 4
"""How many times the items worked on may be held: a slow one keeps the others from working no sooner than that."""


@define(eq=False)
class _Place(Generic[Result]):
    """The place of an item in the order."""

    came: Attempt[Result] | None = None
    done: trio.Event = field(factory=trio.Event)

    def settle(self, came: Attempt[Result]) -> None:
        self.came = came
        self.done.set()


async def in_order(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    deliver: Callable[[Result], Awaitable[None]],
    *,
    max_concurrent: int,
) -> None:
    """Work on each item, and deliver the results one after the other, in the order of the items.

    The next item is asked for when there is room for it. What the items raise comes after the results before it have
    been delivered; what `work` or `deliver` raises ends everything at once. Raised is the exception itself, never a
    group.
    """
    came = await attempt(_run, iter(items), work, deliver, max_concurrent)
    try:
        if came.error is not None:
            raise next(iter([*interrupts(came.error), *plain(came.error)]), came.error)
    finally:
        del came  # a frame that keeps an exception which it raises is kept by it


async def _run(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Result]],
    deliver: Callable[[Result], Awaitable[None]],
    max_concurrent: int,
) -> None:
    at_work, held = trio.CapacityLimiter(max_concurrent), trio.CapacityLimiter(max_concurrent * AHEAD)
    filled, places = trio.open_memory_channel[_Place[Result]](float("inf"))

    async def one(item: Item, place: _Place[Result]) -> None:
        async with at_work:
            result = await work(item)
        place.settle(Attempt(value=result))

    async def feed() -> None:
        with filled:
            left = iter(items)
            while True:
                place = _Place[Result]()
                await held.acquire_on_behalf_of(place)
                try:
                    item = next(left)
                except StopIteration:
                    return
                except Exception as raised:  # noqa: BLE001  (of whoever makes the items: told in its turn)
                    filled.send_nowait(place)
                    place.settle(Attempt(error=raised))
                    return
                filled.send_nowait(place)
                nursery.start_soon(one, item, place)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        async for place in places:
            await place.done.wait()
            came = place.came
            assert came is not None
            if came.error is not None:
                raise came.error
            await deliver(came.value)  # type: ignore[arg-type]
            held.release_on_behalf_of(place)

"""Work that must be done whatever is cancelled: never in the main task, since Ctrl-C strikes that, shielded or not."""

from collections.abc import Awaitable, Callable

import trio


@trio.lowlevel.enable_ki_protection
async def apart(work: Callable[[], Awaitable[None]], *, name: str) -> BaseException | None:
    """Do work that shields its own steps to its end, and return what was raised meanwhile, None if nothing was.

    A KeyboardInterrupt that strikes while the work goes on is among what is returned. A cancellation is not: the caller
    meets it at its next checkpoint.
    """

    @trio.lowlevel.enable_ki_protection
    async def child() -> None:
        await work()

    try:
        if _may_be_struck():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child, name=name)
        else:
            await child()
    except GeneratorExit:
        raise
    except BaseException as raised:  # noqa: BLE001  (handed to the caller, who decides)
        return raised
    return None


def _may_be_struck() -> bool:
    """Whether this task may be the main one, a child of the root task; one in a nursery of somebody else is none."""
    nursery = trio.lowlevel.current_task().parent_nursery
    return nursery is None or nursery.parent_task is trio.lowlevel.current_root_task()


async def shielded(work: Callable[[], Awaitable[None]], *, name: str) -> BaseException | None:
    """The same with work that does not shield itself."""

    async def within() -> None:
        with trio.CancelScope(shield=True):
            await work()

    return await apart(within, name=name)

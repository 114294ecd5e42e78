"""Work that must be done whatever is cancelled: in a child task, since Ctrl-C strikes only the main task, shielded or
not."""

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
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child, name=name)
    except GeneratorExit:
        raise
    except BaseException as raised:  # noqa: BLE001  (handed to the caller, who decides)
        return raised
    return None


async def shielded(work: Callable[[], Awaitable[None]], *, name: str) -> BaseException | None:
    """The same with work that does not shield itself."""

    async def within() -> None:
        with trio.CancelScope(shield=True):
            await work()

    return await apart(within, name=name)

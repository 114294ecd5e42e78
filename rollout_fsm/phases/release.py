"""`releasing`, `discarding`, `aborting`: everything that is still held goes, newest first (L55, L70)."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from rollout_fsm.world import World


def release(world: World) -> Callable[[], Awaitable[None]]:
    """What lets go of everything. Each step has its own bound and is attempted once."""
    return partial(_release, world)


async def _release(world: World) -> None:
    if world.keeper is not None:
        with trio.CancelScope(shield=True):
            await world.kept()
    await world.holdings.release("close", "cleanup", "leaked")

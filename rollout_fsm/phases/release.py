"""`releasing`, `discarding`, `aborting`: everything that is still held goes, newest first (L55, L70)."""

from collections.abc import Awaitable, Callable
from functools import partial

from rollout_fsm.world import World


def release(world: World) -> Callable[[], Awaitable[None]] | None:
    """What lets go of everything; None if there is nothing to let go of, and nobody to be told of it. Each step has its
    own bound and is attempted once."""
    return partial(_release, world) if world.holdings.held or world.keeper is not None else None


async def _release(world: World) -> None:
    await world.kept()
    await world.holdings.release("close", "cleanup", "leaked")

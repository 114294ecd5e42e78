"""`releasing`, `discarding`, `aborting`: everything that is still held goes, newest first (L55, L70)."""

from rollout_fsm.world import World


async def release(world: World) -> None:
    """Let go of everything. Shielded by the driver; each step has its own bound and is attempted once."""
    await world.kept()
    await world.holdings.release("close", "cleanup", "leaked")

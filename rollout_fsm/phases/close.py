"""`closing`: harness session, tool servers and interception slot go down, newest first; a failure is a warning (L50,
L51)."""

from rollout_fsm.world import World


async def close(world: World) -> None:
    """Close the exchange. Shielded by the driver; each step has its own bound (L71)."""
    await world.holdings.release("close")

"""`closing`: harness session, tool servers and interception slot go down, newest first; a failure is a warning (L50,
L51)."""

from collections.abc import Awaitable, Callable
from functools import partial

from rollout_fsm.world import World


def close(world: World) -> Callable[[], Awaitable[None]] | None:
    """What closes the exchange; None if there is nothing to close. Each step has its own bound (L71)."""
    holdings = world.holdings
    due = any(held.kind == "close" and held.is_due for held in holdings.held)
    return partial(holdings.release, "close") if due else None

"""`finalizing`: `task.finalize`, which collects what scoring needs (L50, L54)."""

from rollout_fsm.attempt import strikeable
from rollout_fsm.foreign import call, is_given
from rollout_fsm.outcome import Outcome
from rollout_fsm.world import World


async def finalize(world: World) -> Outcome:
    """Let the task finish its world."""
    if is_given(world.plan.task, "finalize"):  # else nothing that may fail is called before scoring
        await world.kept()
    await strikeable(call, world.plan.task.finalize, world.trace, world.require_runtime())
    return Outcome(trigger="finalized")


def nothing_to_finalize(world: World) -> Outcome | None:
    """The outcome where the task has nothing to finish, in a runtime that nobody else can have stopped, and there would
    have been time for it."""
    plan = world.plan
    idle = plan.borrowed is None and plan.bounds.finalize > 0 and not is_given(plan.task, "finalize")
    return Outcome(trigger="finalized") if idle else None

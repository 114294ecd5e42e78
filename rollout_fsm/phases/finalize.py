"""`finalizing`: `task.finalize`, which collects what scoring needs (L50, L54)."""

from rollout_fsm.attempt import strikeable
from rollout_fsm.foreign import call, is_overridden
from rollout_fsm.outcome import Outcome
from rollout_fsm.task import Task
from rollout_fsm.world import World


async def finalize(world: World) -> Outcome:
    """Let the task finish its world."""
    own = world.plan.task.finalize
    if is_overridden(own, Task.finalize):  # else nothing that may fail is called before scoring
        await world.kept()
    await strikeable(call, own, world.trace, world.require_runtime())
    return Outcome(trigger="finalized")


def nothing_to_finalize(world: World) -> Outcome | None:
    """The outcome where the task has nothing to finish, in a runtime that nobody else can have stopped."""
    idle = world.plan.borrowed is None and not is_overridden(world.plan.task.finalize, Task.finalize)
    return Outcome(trigger="finalized") if idle else None

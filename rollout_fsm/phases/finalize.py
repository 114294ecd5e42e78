"""`finalizing`: `task.finalize`, which collects what scoring needs (L50, L54)."""

from rollout_fsm.attempt import strikeable
from rollout_fsm.foreign import call
from rollout_fsm.outcome import Outcome
from rollout_fsm.task import Task
from rollout_fsm.world import World


async def finalize(world: World) -> Outcome:
    """Let the task finish its world."""
    if type(world.plan.task).finalize is not Task.finalize:  # else nothing that may fail is called before scoring
        await world.kept()
    runtime = world.require_runtime()
    await strikeable(call, world.plan.task.finalize, world.trace, runtime)
    return Outcome(trigger="finalized")

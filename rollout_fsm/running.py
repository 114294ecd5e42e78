"""Running one activity of an active state under its bound, and seeing what came of it. Judging it is
`outcome.judge`'s."""

from collections.abc import Callable

import trio
from attrs import frozen

from rollout_fsm.attempt import Attempt, attempt
from rollout_fsm.outcome import Outcome
from rollout_fsm.phases import Phase
from rollout_fsm.world import World


@frozen(kw_only=True, eq=False)
class Ran:
    """What came of an activity."""

    came: Attempt[Outcome]
    elapsed: float
    """Seconds until the foreign code returned."""
    expired: bool
    """Whether the deadline had passed by then: one that is exactly met has passed (L14a)."""
    limit: float

    @property
    def ended_by_itself(self) -> bool:
        """Whether nothing of it has to be stopped."""
        return self.came.value is not None and not self.came.value.left_early and not self.expired


async def run_activity(
    world: World, phase: Phase, bound: str, cancellable: Callable[[trio.CancelScope | None], None]
) -> Ran:
    """Run the phase under `timeouts.<bound>`. `cancellable` is given the scope that cancels it, then None."""
    limit, overdue = world.limit(bound), world.plan.services.overdue
    bounded = overdue.bounded(limit, rollout=world.trace.id, doing=world.doing, pausable=bound == "agent")
    with bounded as scope:
        world.bound = scope
        cancellable(scope)
        world.begin(phase.boundary, phase.doing)
        came = await attempt(phase.run, world)
        returned, deadline = world.returned or (trio.current_time(), scope.deadline)
        world.bound = None
        cancellable(None)
    return Ran(came=came, elapsed=returned - bounded.began, expired=returned >= deadline, limit=limit)

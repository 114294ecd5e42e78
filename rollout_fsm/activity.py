"""What a rollout is doing right now: its state, since when, whom it waits for, how much time is left. Read, never
kept."""

from attrs import frozen

from rollout_fsm.machine.declaration import State
from rollout_fsm.parties import PARTIES, Party
from rollout_fsm.world import World


@frozen(kw_only=True)
class Activity:
    """What a rollout is doing."""

    state: str
    since: float
    """When it came into this state, in epoch seconds."""
    waiting_on: Party | None
    """Who has to act for it to go on; None once it is final."""
    doing: str
    """What that is, in a few words: "task setup", "a model call", "a permit for the segment"."""
    attempt: int
    """1 for the first, one more for each retry."""
    time_left: float | None
    """Seconds until the bound of what is running; None where nothing bounded runs, infinite without a bound."""


def activity_of(world: World, state: State, *, attempt: int) -> Activity:
    """What the rollout of this world, in this state, is doing."""
    trace = world.trace
    waiting_on, doing = _waiting(world, state)
    return Activity(
        state=state.name,
        since=trace.transitions[-1].time if trace.transitions else trace.timing.start,
        waiting_on=waiting_on,
        doing=doing,
        attempt=attempt,
        time_left=None if world.bound is None else world.plan.services.overdue.left(world.bound),
    )


def _waiting(world: World, state: State) -> tuple[Party | None, str]:
    if state.kind == "final":
        return None, "nothing"
    if state.kind == "resting":
        return (
            ("engine", "a permit for the segment")
            if world.permit_wait is not None
            else ("caller", "the caller's next call")
        )
    if state.kind == "shielded":
        step = world.holdings.current
        return (PARTIES[step.boundary], step.doing()) if step is not None else ("engine", state.name)
    if world.session is not None and world.session.waits:
        return world.session.waits[-1]
    return PARTIES[world.blame.boundary], world.doing()

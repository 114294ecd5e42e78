"""What each active state does, one file each. An activity returns an outcome; what it means is the machine's
business."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from attrs import frozen

from rollout_fsm.errors import ErrorRecord, HarnessError, RolloutError, SandboxError, TaskError
from rollout_fsm.outcome import Failure, Outcome
from rollout_fsm.phases.boot import boot, take_over
from rollout_fsm.phases.close import close
from rollout_fsm.phases.finalize import finalize, nothing_to_finalize
from rollout_fsm.phases.release import release
from rollout_fsm.phases.score import score
from rollout_fsm.phases.segment import agent_timeout, leave_early, segment
from rollout_fsm.phases.setup import setup
from rollout_fsm.world import World


def ran_out(world: World, elapsed: float, setting: str, limit: float) -> ErrorRecord | None:
    """The failure of what was running when the bound of its state ran out (L14)."""
    return world.blame.timed_out(elapsed=elapsed, setting=setting, limit=limit)


def nothing(_: World) -> None:
    """There is nothing of the kind."""


@frozen(kw_only=True)
class Phase:
    """The activity of an active state."""

    run: Callable[[World], Awaitable[Outcome]]
    boundary: type[RolloutError]
    """Whom a bound blames that is used up before anything is called (L13, L14)."""
    doing: str
    timeout: Callable[[World, float, str, float], ErrorRecord | None] = ran_out
    """What it means that the bound ran out, after so many seconds, by which setting and limit; None: it is no
    failure."""
    idle: Callable[[World], Outcome | None] = nothing
    """The outcome, where the activity would call nothing, so that there is nothing to bound; None: it is run."""
    leave: Callable[[World], Callable[[], Awaitable[Failure | None]] | None] = nothing
    """What stops what the activity started, if it did not end by itself, and returns what could not be stopped (L13);
    None where there is nothing to stop."""


ACTIVE: Mapping[str, Phase] = MappingProxyType(
    {
        "boot": Phase(run=boot, boundary=SandboxError, doing="booting"),
        "setup": Phase(run=setup, boundary=TaskError, doing="task setup"),
        "segment": Phase(run=segment, boundary=HarnessError, doing="segment", timeout=agent_timeout, leave=leave_early),
        "finalize": Phase(run=finalize, boundary=TaskError, doing="finalize", idle=nothing_to_finalize),
        "score": Phase(run=score, boundary=TaskError, doing="scoring"),
    }
)
"""The activities of active states, under the names that the states declare."""

SHIELDED: Mapping[str, Callable[[World], Callable[[], Awaitable[None]] | None]] = MappingProxyType(
    {"close": close, "release": release}
)
"""The activities of shielded states, as the work that there is, None where there is none: steps that shield and bound
themselves. Each has one outcome, the only trigger that its state takes (L76)."""

__all__ = ["ACTIVE", "SHIELDED", "Phase", "take_over"]

"""What each active state does, one file each. An activity returns an outcome; what it means is the machine's
business."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from attrs import frozen

from rollout_fsm.errors import HarnessError, RolloutError, SandboxError, TaskError
from rollout_fsm.outcome import Outcome
from rollout_fsm.phases.boot import boot
from rollout_fsm.phases.close import close
from rollout_fsm.phases.finalize import finalize
from rollout_fsm.phases.release import release
from rollout_fsm.phases.score import score
from rollout_fsm.phases.segment import segment
from rollout_fsm.phases.setup import setup
from rollout_fsm.world import World


@frozen(kw_only=True)
class Phase:
    """The activity of an active state, and whom a bound blames that is used up before it starts (L13, L14)."""

    run: Callable[[World], Awaitable[Outcome]]
    boundary: type[RolloutError]
    doing: str


ACTIVE: Mapping[str, Phase] = MappingProxyType(
    {
        "boot": Phase(run=boot, boundary=SandboxError, doing="booting"),
        "setup": Phase(run=setup, boundary=TaskError, doing="task setup"),
        "segment": Phase(run=segment, boundary=HarnessError, doing="segment"),
        "finalize": Phase(run=finalize, boundary=TaskError, doing="finalize"),
        "score": Phase(run=score, boundary=TaskError, doing="scoring"),
    }
)
"""The activities of active states, under the names that the states declare."""

SHIELDED: Mapping[str, Callable[[World], Awaitable[None]]] = MappingProxyType({"close": close, "release": release})
"""The activities of shielded states; each has one outcome, the only trigger that its state takes (L76)."""

__all__ = ["ACTIVE", "SHIELDED", "Phase"]

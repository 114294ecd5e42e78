"""What a rollout that is owed has behind it: the attempts before, as its trace tells of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from rollout_fsm.messages import JSON

if TYPE_CHECKING:
    from rollout_fsm.journal import Attempt

TO_BE_RETRIED = "to_be_retried"
"""In the `info` of a trace that another attempt was to follow, which the engine's end came before."""


@frozen(kw_only=True, eq=False)
class Past:
    """What a rollout that is owed has behind it."""

    earlier: Sequence[JSON] = ()
    """What its trace is to tell of earlier attempts, oldest first."""
    cut_off: int = 0
    """How many of them ended with their process, which is no failure of theirs."""
    left: "Attempt | None" = None
    """The attempt that can be gone on with, if its box still stands."""


NO_PAST = Past()
"""Of a rollout that is run for the first time."""


def told_of(attempt: "Attempt") -> JSON:
    """What a later attempt tells of one that ended with its process, in which state, and when it began in epoch
    seconds."""
    return {"id": attempt.trace, "errors": [], "cut_off": attempt.state, "start": attempt.began}

"""What is seen of a driven rollout: every firing, every call, and how things stood whenever nothing moved.

Records only. The lines of a story are their texts.
"""

import trio
from attrs import define, field, frozen

from rollout_fsm.machine.declaration import Row


@define(eq=False, kw_only=True)
class Fired:
    """One firing, as it was when it happened."""

    trigger: str
    source: str
    time: float
    holds: frozenset[str]
    """The guards that hold by what the parties did."""
    condition: str | None
    """The stop condition before."""
    failed: bool
    """Whether a party that the activity asked has failed in this state."""
    by: "Called | None"
    """The call whose task fired; None for a turn's refusal."""
    row: Row | None = None
    """What the machine took; None if it refused."""

    @property
    def moved(self) -> bool:
        """Whether the state changed."""
        return self.row is not None and not self.row.same

    def __str__(self) -> str:
        return f"{self.source} -{self.trigger}-> {'refused' if self.row is None else self.row.to}"


@define(eq=False, kw_only=True)
class Called:
    """One call of a verb, by a task of its own."""

    verb: str
    said: str | None
    """The words of a step, the condition of a stop."""
    state: str
    """Where the rollout was."""
    trace: str
    """The trace then, as JSON."""
    fired: int
    """How many firings there had been."""
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    cancelled_in: str | None = None
    """The state in which its caller was cancelled."""
    cancelled_driving: bool = False
    """Whether it was the call in progress then, and not one that waited for that."""
    interrupted: bool = False
    """Whether a party raised a KeyboardInterrupt while it was the call in progress."""
    done: bool = False
    came: object = None
    """What it returned, or the type of what it raised."""
    left_in: str = ""
    """Where the rollout was when it returned."""
    changed: bool = False
    """Whether the trace was another one then."""

    def __str__(self) -> str:
        who = "" if self.cancelled_in is None else f" (its caller was cancelled in {self.cancelled_in})"
        if not self.done:
            return f"{self.verb}() in {self.state}{who} has not returned"
        came = f"raised {self.came.__name__}" if isinstance(self.came, type) else f"returned {self.came}"
        return f"{self.verb}() in {self.state}{who} {came}, in {self.left_in}"


@frozen(kw_only=True)
class AtRest:
    """How things stood when nothing moved."""

    state: str
    pending: bool
    """Whether a call was pending."""
    time: float
    fired: int
    """How many firings there had been."""

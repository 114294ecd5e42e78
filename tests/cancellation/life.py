"""What is noted of one rollout of a play: the interruptions that it met, in which state, and what callers were told."""

import weakref

from attrs import define, field, fields, frozen

from rollout_fsm import Rollout, Trace
from rollout_fsm.machine.lifecycle import lifecycle
from tests.cancellation.faults import INTERRUPTS
from tests.world import World


@frozen(kw_only=True, eq=False)
class Effect:
    """An interruption, when the rollout met it."""

    means: str
    """As in a plan, or the name of the fault that interrupts."""
    state: str
    driver: str
    """Which task the call in progress runs in."""
    errors: tuple[str, ...]
    """The types of those on the trace by then."""
    begun: int
    """How much had begun by then."""
    doing: str
    """What began last."""

    @property
    def interrupt(self) -> type[BaseException] | None:
        """What is to be raised bare, if it is an interrupt."""
        return KeyboardInterrupt if self.means == "interrupt" else INTERRUPTS.get(self.means)

    @property
    def rests(self) -> bool:
        """Whether no call was in progress: who waits for that is about to go on."""
        return lifecycle().declaration.states[self.state].activity is None


@define(eq=False)
class Call:
    """A verb in progress, and what came of it."""

    verb: str
    by: str
    effects: list[Effect] = field(factory=list)
    """What struck whoever called, while it went on."""
    pending: bool = True
    raised: type[BaseException] | None = None
    returned: object = None
    right: object = None
    """What it had to return, if it returned: by the state in which it left the rollout."""


@define(eq=False)
class Life:
    """One rollout."""

    world: World
    trace: Trace
    rollout: "weakref.ref[Rollout]"
    driver: str = "main"
    effects: list[Effect] = field(factory=list)
    calls: list[Call] = field(factory=list)
    finished: list[str] = field(factory=list)
    """The trace as text, each time that it was said to be finished."""
    freed: bool = False
    """Whether the rollout was gone when the play was over, the collector being off."""

    @property
    def state(self) -> str:
        return self.trace.transitions[-1].target if self.trace.transitions else "created"

    @property
    def pending(self) -> list[Call]:
        return [call for call in self.calls if call.pending]


def all_of(trace: Trace) -> str:
    """The whole record as text, to see whether anything changes."""
    return repr([getattr(trace, attribute.name) for attribute in fields(Trace) if attribute.eq])

"""What the scripted parties of one play share: the scenario, the time, and the record of what was asked of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from rollout_fsm.simulation.scenario import Hook, Scenario
from rollout_fsm.simulation.timeline import Timeline
from rollout_fsm.trace import Trace


@define(eq=False)
class Stage:
    """One play."""

    scenario: Scenario
    timeline: Timeline
    events: list[str] = field(factory=list)
    """The calls to outside parties, in the order in which they began."""
    calls: list[tuple[str, int]] = field(factory=list)
    """`segment.turn` and status of every answer that the harness was given."""
    trace: Trace | None = None
    """Of the rollout, or of its newest attempt, once that is minted."""
    attempt: int = 1
    """The number of the attempt that runs."""

    @property
    def next_turn(self) -> int:
        """The number, from 1, of the turn that a request or a response belongs to."""
        return 1 if self.trace is None else self.trace.num_turns + 1

    @contextmanager
    def on(self, event: str, *phases: str) -> Iterator[None]:
        """A scripted party is called, and runs inside of this."""
        self.events.append(event)
        for phase in phases:
            self.timeline.enter(phase)
        with self.timeline.on_stage(event):
            yield

    async def play(self, hook: Hook, event: str, phase: str) -> None:
        """A party that only takes its time, and fails if it is to."""
        with self.on(event, phase):
            await self.timeline.spend(hook.delay, ignore_cancel=hook.ignore_cancel)
            if hook.error is not None:
                raise hook.error.make()

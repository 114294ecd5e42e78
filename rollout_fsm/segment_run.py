"""One segment, as its model calls know it: who is in flight, what failed, when it must be over (L12, L15, L18, L24)."""

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Protocol

import trio
from attrs import define, field

from rollout_fsm.errors import ErrorRecord, RolloutError, TurnRefused
from rollout_fsm.messages import Response


class Gate(Protocol):
    """The rollout's state, as far as turns depend on it. The state decides; who asks here decides nothing."""

    @property
    def admits_turns(self) -> bool:
        """Whether a turn may be admitted or refused now: a segment runs."""
        ...

    @property
    def asks_stops(self) -> bool:
        """Whether a segment runs that no refusal has ended yet."""
        ...

    @property
    def concluded(self) -> bool:
        """Whether the exchange is over."""
        ...

    def refuse(self, condition: str) -> None:
        """Fire `refused` with the stop condition."""
        ...


class SegmentEnded(TurnRefused):
    """The segment ended while the call was in flight: it was cut off and commits nothing (L24)."""


@define(eq=False)
class Call:
    """A model call that was admitted."""

    segment: "SegmentRun"
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    done: trio.Event = field(factory=trio.Event)
    answered: bool = False
    """Whether the model has answered: from then on a hang-up changes nothing (L33)."""
    awaited: bool = True
    """Whether somebody waits for the answer; an error that nobody takes is not kept, since it would keep itself."""
    response: Response | None = None
    error: RolloutError | TurnRefused | None = None

    @trio.lowlevel.enable_ki_protection
    async def wait(self, *, keep_answer: bool) -> Response:
        """The answer. A caller that is cancelled gives the call up; with `keep_answer` only until the model has
        answered."""
        try:
            await self.done.wait()
        except BaseException:
            if not (keep_answer and self.answered):
                self.hang_up()
                raise
            with trio.CancelScope(shield=True):  # its hooks are bounded, and the end of the segment ends them
                await self.done.wait()
        return self.result()

    def hang_up(self) -> None:
        """The harness gave the call up."""
        self.awaited, self.error = False, None
        if not self.answered:
            self.scope.cancel()
            self.segment.leave(self)

    def fail(self, error: RolloutError | TurnRefused) -> None:
        """What the harness is to be told instead of an answer."""
        self.error = error if self.awaited else None

    def result(self) -> Response:
        """The answer, or what the harness is to be told."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
            if self.response is None:
                raise SegmentEnded("the segment ended while the call was in flight")
            return self.response
        finally:
            del error


@define(eq=False)
class SegmentRun:
    """A segment that runs, or the last one that ran: the guards ask what became of it."""

    gate: Gate
    turns_before: int
    bound: trio.CancelScope
    """The scope whose deadline is the end of the agent budget, or of the drain."""
    drain: float
    shorten: Callable[[trio.CancelScope, float], None]
    """Leaves that scope no more than so many seconds."""
    context: Context = field(factory=copy_context, repr=False)
    """The context variables of the task that runs the segment."""
    nursery: trio.Nursery | None = None
    """Where calls are admitted to; None before, once the harness has returned, and once a hook has failed."""
    in_flight: set[Call] = field(factory=set)
    model_failures: tuple[ErrorRecord, ...] = ()
    """The last model call failed with these, and no later one succeeded (L20)."""
    hook_failures: tuple[ErrorRecord, ...] = ()
    """A hook failed with these, which ended the segment (L35)."""
    survives: bool = False
    """The agent's processes could not be killed (L13)."""

    def begin(self) -> Call:
        """Admit a call: its place is taken in the same step in which the limits were asked (L15)."""
        call = Call(self)
        self.in_flight.add(call)
        return call

    def leave(self, call: Call) -> None:
        """The call is over, or is not to count any more: its place is free (L15, L18)."""
        self.in_flight.discard(call)
        self.start_drain()

    def start_drain(self) -> None:
        """A refused harness has `timeouts.drain` from the last answer, or from the refusal if nothing is in flight."""
        stopping = not self.gate.asks_stops and self.gate.admits_turns
        if stopping and self.nursery is not None and not self.in_flight:
            self.shorten(self.bound, self.drain)

    def hook_failed(self, failures: tuple[ErrorRecord, ...]) -> None:
        """End the segment: nothing more is admitted, and the harness is interrupted (L35)."""
        self.hook_failures = self.hook_failures or failures
        nursery, self.nursery = self.nursery, None
        if nursery is not None:  # else it is over already
            nursery.cancel_scope.cancel()

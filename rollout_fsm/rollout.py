"""A rollout: the three verbs, the emergency, and the loop that the whole engine hangs on.

The loop fires the caller's trigger; while the new state has an activity it awaits that, judges its outcome and fires
it; then it rests. The activities run in the task of whoever called the verb, so every scope is entered and left inside
one call. No flag says what happens next: the state does. A call is in progress exactly when the state is active or
shielded (L23).
"""

import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol

import trio
from attrs import define, evolve, field

from rollout_fsm.clock import AnchoredClock
from rollout_fsm.errors import (
    ErrorRecord,
    HarnessError,
    RolloutBusyError,
    TaskError,
    leaves,
    record,
)
from rollout_fsm.facts import RolloutFacts
from rollout_fsm.machine.declaration import Row, State
from rollout_fsm.machine.lifecycle import Lifecycle, lifecycle
from rollout_fsm.messages import Message, as_messages
from rollout_fsm.outcome import Failure, Interrupt, Outcome, bare, interrupts, judge
from rollout_fsm.phases import ACTIVE, SHIELDED
from rollout_fsm.phases.segment import leave_early
from rollout_fsm.plan import Plan
from rollout_fsm.shield import shielded
from rollout_fsm.trace import AgentSpan, Span, Trace, TraceWarning, TransitionRecord
from rollout_fsm.world import World, lifetime_error

log = logging.getLogger("rollout_fsm")
protected = trio.lowlevel.enable_ki_protection
"""Ctrl-C strikes at checkpoints only while the driver itself runs, never between a decision and its effect."""


class Listener(Protocol):
    """Who is told what happens to a rollout; the engine."""

    def on_transition(self, rollout: "Rollout", transition: TransitionRecord) -> None:
        """A transition was taken."""
        ...

    def on_finished(self, rollout: "Rollout") -> None:
        """The rollout is final; its trace is sealed."""
        ...


@define(eq=False, weakref_slot=True, repr=False)
class Rollout:
    """One execution of one task by one agent. One caller drives it (L23); `stop` and `cancel` may come from any task.

    As a context manager it ends itself: left normally by `close()`, by an exception by `fail(error)` and `close()`, by
    a cancellation by `cancel()` (L70).
    """

    plan: Plan
    trace: Trace
    _listener: Listener | None
    state: str = field(init=False, factory=lambda: lifecycle().declaration.initial.name)
    """The state's name. The machine sets it, nobody else."""
    _world: World = field(init=False)
    _settled: trio.Event | None = field(init=False, default=None)
    """Set when the call in progress has brought the rollout to rest or to an end; None while none is in progress."""
    _scope: trio.CancelScope | None = field(init=False, default=None)
    """Of the running activity, for a `cancel()` from elsewhere."""
    _cancel_asked: bool = field(init=False, default=False)
    """Whether `cancel()` has asked; it is never taken back."""
    _struck: list[Interrupt] = field(init=False, factory=list)
    """KeyboardInterrupts and SystemExits to be raised at the end of the call."""
    _blamed: list[BaseException] = field(init=False, factory=list)
    """What the caller is to be told at the end of the call: its lifetime bug (L3), or a bug of the engine (L76)."""

    def __attrs_post_init__(self) -> None:
        clock = AnchoredClock.anchor()
        self.trace.timing.start = clock.now()
        self._world = World(plan=self.plan, trace=self.trace, clock=clock, owner=self)

    # ---- the verbs

    @protected
    async def open(self) -> bool:
        """Boot the runtime, set everything up. Returns whether the exchange can go on; a failure is on the trace (L7).

        Raises `IllegalTransition` after the first `open`, `RolloutBusyError` while a call is in progress,
        `RuntimeLifetimeError` if the borrowed runtime was stopped (L3).
        """
        await self._meet_an_abort()
        await self._drive("open", failures=[] if self._facts.opens_conversation else [Failure(error=record(_nobody()))])
        return self.can_go_on

    @protected
    async def step(self, messages: str | Message | Iterable[Message | str] | None = None) -> bool:
        """Run one segment. Returns whether the exchange can go on; False at once if it is over (L10, L11).

        The first segment takes the task's prompt, then `messages` if any; later ones go on with `messages`. Raises
        `TypeError` with neither, `IllegalTransition` before `open` and after the end, `RolloutBusyError` while a call
        is in progress.
        """
        await self._meet_an_abort()
        said = () if messages is None else as_messages(messages)
        if self.can_go_on and not said and not self._world.opening:
            raise TypeError("step() has nothing to say: the prompt was taken or there is none; pass messages (L10)")
        await self._drive("step", said=said)
        return self.can_go_on

    @protected
    async def close(self) -> Trace:
        """End the exchange, finalize, score, release; return the finished trace, whatever happened (L50). Idempotent.

        Waits for a call in progress. Raises only `RuntimeLifetimeError` (L3) and a cancellation.
        """
        while self._settled is not None:
            await self._settled.wait()
        await self._drive("close")
        return self.trace

    def stop(self, condition: str) -> None:
        """End the exchange with this stop condition: at once in `waiting`, elsewhere at the next turn or the segment's
        end (L22).

        Never raises for a state that has no use for it.
        """
        if not isinstance(condition, str) or not condition:
            raise TypeError(f"stop() takes the stop condition as text, not {condition!r}")
        if not self.concluded and self.trace.stop_condition is None:
            self.trace.stop_condition = condition
        if self._machine.takes(self.state, "stop"):
            self._fire(Outcome(trigger="stop", condition=condition))
        else:
            log.debug("stop(%r) of rollout %s in %s: noted", condition, self.trace.id, self.state)

    def fail(self, error: BaseException) -> None:
        """Report a failure that the rollout could not see; recorded under its own type (L43).

        Raises `RolloutBusyError` while a call is in progress (L23). In a final state it is only logged.
        """
        state = self._declared
        if state.activity is not None and state.group != "cancellation":
            raise RolloutBusyError(self._busy("fail"))
        if state.kind == "final" or state.activity is not None:
            log.warning(
                "fail() of rollout %s, which is %s: %s: %s", self.trace.id, self.state, type(error).__name__, error
            )
            return
        self._fire(Outcome(trigger="errored", failures=[Failure(error=record(leaf)) for leaf in leaves(error)]))

    @protected
    async def cancel(self) -> None:
        """Release everything and end as `aborted`; returns when the rollout is final (L72). Await it: alone it does
        nothing."""
        while self._settled is not None:
            self._cancel_asked = True
            if self._scope is not None:
                self._scope.cancel()
            await self._settled.wait()
        await self._drive("cancel")

    # ---- what can be read

    @property
    def ok(self) -> bool:
        """Whether the rollout completed: finalized and scored (L56)."""
        return self.trace.ok

    @property
    def failure(self) -> ErrorRecord | None:
        """The primary cause of a failure, as text (L40, L84)."""
        return self.trace.errors[0] if self.trace.errors else None

    @property
    def time_remaining(self) -> float:
        """Seconds of the agent budget that are left; infinite without a bound (L12)."""
        return self._world.agent_left()

    @property
    def is_final(self) -> bool:
        """Whether the rollout has ended."""
        return self._declared.kind == "final"

    @property
    def can_go_on(self) -> bool:
        """Whether the exchange can go on: the rollout waits for its next segment."""
        return self._declared.kind == "resting" and self._declared.span == "agent"

    @property
    def concluded(self) -> bool:
        """Whether the exchange is over (L22, L58)."""
        return self._declared.group not in ("opening", "exchange")

    @property
    def admits_turns(self) -> bool:
        """Whether a turn may be admitted or refused now: a segment runs (L24)."""
        return self._machine.takes(self.state, "refused")

    @property
    def asks_stops(self) -> bool:
        """Whether a segment runs that no refusal has ended yet (L17)."""
        return self._machine.moves(self.state, "refused")

    def refuse(self, condition: str) -> None:
        """A turn is refused; the session's word (L16)."""
        self._fire(Outcome(trigger="refused", condition=condition))

    def __repr__(self) -> str:
        trace = self.trace
        of = f"task={trace.task.type} stop={trace.stop_condition} turns={trace.num_turns}"
        return f"<Rollout {trace.id} {self.state} {of}>"

    async def __aenter__(self) -> "Rollout":
        return self

    @protected
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, GeneratorExit):
            return  # nothing may be awaited any more; the engine ends the rollout (L75)
        if error is not None and (_caller_cancelled() or interrupts(error) or _only_cancelled(error)):
            with trio.CancelScope(shield=True):
                await self.cancel()
            return
        try:
            if error is not None:
                while self._settled is not None:
                    await self._settled.wait()
                self.fail(error)
            await self.close()
        finally:
            if not self.is_final:  # cancelled while it waited for another task's call (L70)
                with trio.CancelScope(shield=True):
                    await self.cancel()

    # ---- the loop

    @property
    def _machine(self) -> Lifecycle:
        return lifecycle()

    @property
    def _facts(self) -> RolloutFacts:
        return RolloutFacts(self.plan, self._world)

    @property
    def _declared(self) -> State:
        return self._machine.declaration.states[self.state]

    async def _drive(self, trigger: str, *, failures: Sequence[Failure] = (), said: tuple[Message, ...] = ()) -> None:
        """Fire the caller's trigger, then run what the states call for until the rollout rests or ends."""
        if self._declared.activity is not None:
            raise RolloutBusyError(self._busy(trigger))
        self._fire(Outcome(trigger=trigger, failures=failures))
        if self._declared.activity is not None:
            self._world.said = said
            self._settled = settled = trio.Event()
            try:
                await self._run()
            finally:
                self._settled = self._scope = None
                settled.set()
        elif not self._blamed:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        await self._raise()

    async def _run(self) -> None:
        while (state := self._declared).activity is not None:
            try:
                outcome = await (self._shielded(state) if state.kind == "shielded" else self._active(state))
                self._fire(outcome)
            except GeneratorExit:
                raise
            except BaseException as bug:
                log.exception("a bug of the engine in rollout %s, state %s", self.trace.id, self.state)
                self._blamed.append(bug)
                self._fire(Outcome(trigger="cancel"))

    async def _active(self, state: State) -> Outcome:
        """Run the activity of an active state within its bound, and judge its outcome (L14a)."""
        if self._cancelled():
            return Outcome(trigger="cancel")
        world, phase = self._world, ACTIVE[state.activity or ""]
        limit = self._limit(state)
        started = trio.current_time()
        outcome: Outcome | None = None
        error: BaseException | None = None
        world.calling(phase.boundary, phase.doing)
        world.returned, world.standing, world.lost = None, [], []
        if state.bound == "agent":
            world.agent_began = started
        overdue = self.plan.services.overdue
        token = overdue.begin(deadline=started + limit, rollout=self.trace.id, doing=world.doing)
        with trio.CancelScope() as self._scope, trio.CancelScope(deadline=started + limit) as world.deadline:
            if limit > 0:
                try:
                    outcome = await phase.run(world)
                except GeneratorExit:
                    raise
                except BaseException as raised:  # noqa: BLE001  (foreign code; judged below)
                    error = raised
        overdue.end(token)
        deadline, world.deadline, self._scope = world.deadline.deadline, None, None
        returned = trio.current_time() if world.returned is None else world.returned
        survivors: Failure | None = None
        if state.bound == "agent":
            world.agent_used += returned - started
            world.agent_began = None
            ended_by_itself = outcome is not None and outcome.trigger == "segment_ended" and not outcome.lost
            if limit > 0 and (not ended_by_itself or returned >= deadline or self._cancelled()):
                survivors = await self._leave_early()
        self._struck += interrupts(error)
        verdict = judge(
            cancelled=self._cancelled(),
            expired=returned >= deadline,
            timeout=self._timeout(elapsed=returned - started, limit=limit),
            error=error,
            outcome=outcome,
            blame=world.blame,
            standing=world.standing,
            kept=world.lost,
        )
        error = None  # a frame that keeps an exception is kept by it
        if verdict.warning is not None:
            self.trace.warnings += [TraceWarning(kind=verdict.warning, message=text) for text in verdict.lost]
        return verdict if survivors is None else evolve(verdict, failures=[*verdict.failures, survivors])

    async def _shielded(self, state: State) -> Outcome:
        """Run the activity of a shielded state to its end, and fire its one trigger whatever it did (L76)."""
        activity = SHIELDED[state.activity or ""]
        raised = await shielded(lambda: activity(self._world), name=f"{state.name} {self.trace.id}")
        self._struck += interrupts(raised)
        self._struck += self._world.holdings.struck
        self._world.holdings.struck.clear()
        if raised is not None and not interrupts(raised):
            log.error("a bug of the engine in rollout %s, state %s", self.trace.id, self.state, exc_info=raised)
            self._blamed.append(bare(raised))
        raised = None
        (trigger,) = self._machine.legal[state.name]
        return Outcome(trigger=trigger)

    async def _leave_early(self) -> Failure | None:
        """Stop the agent of a segment that is left early, shielded like a release (L13)."""
        found: list[Failure | None] = []

        async def kill() -> None:
            found.append(await leave_early(self._world))

        raised = await shielded(kill, name=f"kill {self.trace.id}")
        self._struck += interrupts(raised)
        return found[0] if found else None

    def _fire(self, outcome: Outcome) -> Row:
        """Let the machine move; then the effects that the row declares. The only place where either happens."""
        source = self._declared
        row = self._machine.fire(self, outcome.trigger, self._facts)
        trace, world = self.trace, self._world
        if row.error == "raise":
            self._blamed.append(lifetime_error(self.plan.borrowed))
        else:
            kept = [failure.error for failure in outcome.failures if failure.stands or row.error == "record"]
            trace.errors += kept
            if row.error == "warn":
                loose = [failure.error for failure in outcome.failures if not failure.stands]
                trace.warnings += [
                    TraceWarning(kind="after_stop", message=f"{error.type}: {error.message}") for error in loose
                ]
        if row.same:
            return row
        if row.sets is not None and trace.stop_condition is None:
            trace.stop_condition = outcome.condition if row.sets == "(given)" else row.sets
        now = world.clock.now()
        taken = TransitionRecord(time=now, trigger=row.trigger, source=row.source, target=row.target, reason=row.reason)
        trace.transitions.append(taken)
        target = self._declared
        if source.span != target.span:
            self._turn_span(source.span, target.span, now)
        if target.kind == "final":
            trace.is_completed, trace.ok = True, target.group == "closing"
            trace.seal()
            world.forget()
        self._tell(taken, target)
        return row

    def _tell(self, taken: TransitionRecord, target: State) -> None:
        listener = self._listener
        if listener is None:
            return
        try:
            listener.on_transition(self, taken)
            if target.kind == "final":
                self._listener = None
                listener.on_finished(self)
        except (KeyboardInterrupt, SystemExit) as interrupt:
            self._struck.append(interrupt)

    def _turn_span(self, closed: str | None, opened: str | None, now: float) -> None:
        """Close the span of the state that was left, begin that of the new one (L80)."""
        timing = self.trace.timing
        if closed is not None:
            span: Span = getattr(timing, closed)
            span.end = now
            if isinstance(span, AgentSpan) and self._world.session is not None:
                span.split(self._world.session.model_time)
        if opened is not None:
            setattr(timing, opened, AgentSpan(start=now) if opened == "agent" else Span(start=now))

    # ---- what the loop asks

    def _cancelled(self) -> bool:
        """Questions 1 and 2 of L14a: is the caller cancelled, or was it interrupted; did `cancel()` ask?"""
        return _caller_cancelled() or bool(self._struck) or self._cancel_asked

    def _limit(self, state: State) -> float:
        """Seconds that the state may take (L2, L12)."""
        bounds = self.plan.bounds
        if state.bound == "agent":
            return bounds.agent - self._world.agent_used
        return float(getattr(bounds, state.bound or ""))

    def _timeout(self, *, elapsed: float, limit: float) -> ErrorRecord | None:
        """The failure that the running state's bound is when it runs out; None where running out is a stop (L13, L14,
        L18)."""
        state = self._declared
        if state.bound != "agent":
            return self._world.blame.timed_out(elapsed=elapsed, setting=state.bound or "", limit=limit)
        if self.plan.policy.agent_expiry == "stop" or not self.asks_stops:
            return None
        used, budget = self._world.agent_used, self.plan.bounds.agent
        said = f"agent timeout: the budget ran out after {used:g} s of running segments (timeouts.agent = {budget:g} s)"
        return record(HarnessError(said))

    async def _meet_an_abort(self) -> None:
        """A verb that meets `aborting` waits for its end (L72)."""
        while self._settled is not None and self._declared.group == "cancellation":
            await self._settled.wait()

    async def _raise(self) -> None:
        """Raise what the call must raise: an interrupt bare, a cancellation fresh, a bug as it is; never a group
        (L70)."""
        struck, self._struck = self._struck, []
        blamed, self._blamed = self._blamed, []
        try:
            for interrupt in struck:
                raise interrupt
            if self._declared.group == "cancellation" and _caller_cancelled():
                await trio.lowlevel.checkpoint()
            for bug in blamed:
                raise bug
        finally:
            del struck, blamed

    def _busy(self, verb: str) -> str:
        return (
            f"{verb}() of rollout {self.trace.id} while another call of it is in progress (state {self.state!r}); one "
            f"caller drives: wait for that call, or use close(), which waits, or stop() and cancel(), which may come "
            f"from anywhere (L23)"
        )


def _nobody() -> TaskError:
    return TaskError("the task has no prompt and nobody to open the exchange; give it a prompt, or has_user=True (L1)")


def _caller_cancelled() -> bool:
    """Whether the caller's own scopes are cancelled or past their deadline, asked outside of the engine's scopes
    (L14a)."""
    return trio.current_effective_deadline() <= trio.current_time()


def _only_cancelled(error: BaseException) -> bool:
    return all(isinstance(leaf, trio.Cancelled) for leaf in leaves(error))

"""A rollout: the three verbs, the emergency, and the loop that the whole engine hangs on.

The loop fires the caller's trigger; while the new state has an activity it awaits that, judges its outcome and fires
it; then it rests. The activities run in the task of whoever called the verb, so every scope is entered and left inside
one call. No flag says what happens next: the state does. A call is in progress exactly when the state is active or
shielded (L23).
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Protocol

import trio
from attrs import Factory, define, evolve, field, frozen

from rollout_fsm.activity import Activity, activity_of
from rollout_fsm.attempt import closes
from rollout_fsm.clock import AnchoredClock
from rollout_fsm.ending import ending_of
from rollout_fsm.errors import ErrorRecord, RolloutBusyError, TaskError, leaves, record, text
from rollout_fsm.facts import RolloutFacts
from rollout_fsm.keeping import Keeper
from rollout_fsm.machine.declaration import Row, State
from rollout_fsm.machine.endings import Ending
from rollout_fsm.machine.lifecycle import Lifecycle, lifecycle
from rollout_fsm.message_json import Said, as_messages
from rollout_fsm.messages import Message
from rollout_fsm.outcome import Failure, Interrupt, Outcome, bare, interrupts, is_cancelled, judge, meet_cancellation
from rollout_fsm.phases import ACTIVE, SHIELDED, take_over
from rollout_fsm.plan import Plan
from rollout_fsm.running import run_activity
from rollout_fsm.runtime import Runtime
from rollout_fsm.shield import apart, shielded
from rollout_fsm.trace import Trace, TraceWarning, TransitionRecord
from rollout_fsm.world import World, lifetime_error

log = logging.getLogger("rollout_fsm")
protected = trio.lowlevel.enable_ki_protection
"""Ctrl-C strikes at checkpoints only while the driver itself runs, never between a decision and its effect."""


class Listener(Protocol):
    """Who is told what happens to a rollout; the engine."""

    def on_transition(self, rollout: "Rollout", transition: TransitionRecord) -> list[Interrupt]:
        """A transition was taken. Raises nothing; returns the interrupts that it met."""
        ...

    def on_activity(self, rollout: "Rollout") -> list[Interrupt]:
        """The rollout does something else now. Raises nothing; returns the interrupts that it met."""
        ...

    def on_finished(self, rollout: "Rollout") -> list[Interrupt]:
        """The rollout is final; its trace is sealed. Raises nothing; returns the interrupts that it met."""
        ...


@frozen(eq=False)
class StateGate:
    """The rollout's state, as far as turns depend on it (L17, L22, L24, L58)."""

    rollout: "Rollout"

    @property
    def admits_turns(self) -> bool:
        """Whether a turn may be admitted or refused now: a segment runs."""
        return lifecycle().takes(self.rollout.state, "refused")

    @property
    def asks_stops(self) -> bool:
        """Whether a segment runs that no refusal has ended yet."""
        return lifecycle().moves(self.rollout.state, "refused")

    @property
    def concluded(self) -> bool:
        """Whether the exchange is over."""
        return lifecycle().declaration.states[self.rollout.state].group not in ("opening", "exchange")

    def refuse(self, condition: str) -> None:
        """A turn is refused."""
        self.rollout._fire(Outcome(trigger="refused", condition=condition))


@define(eq=False, weakref_slot=True, repr=False)
class Rollout:
    """One execution of one task by one agent. One caller drives it (L23); `stop` and `cancel` may come from any task.

    As a context manager it ends itself: left normally by `close()`, by an exception by `fail(error)` and `close()`, by
    a cancellation by `cancel()` (L70).
    """

    plan: Plan
    trace: Trace
    _listener: Listener | None
    state: str = field(init=False, default=Factory(lambda self: _reached(self.trace), takes_self=True))
    """The state's name: at first where its trace ends, from then on the machine sets it, nobody else."""
    attempt: int = field(default=1, kw_only=True)
    """1, and one more for each retry before it."""
    watched: bool = field(default=False, kw_only=True)
    """Whether the listener wants to be told of every change of its activity."""
    keeper: Keeper | None = field(default=None, kw_only=True, repr=False)
    """Keeps it in a journal; None where there is none."""
    _world: World = field(init=False)
    _facts: RolloutFacts = field(init=False)
    _machine: Lifecycle = field(init=False, factory=lambda: lifecycle())
    _settled: trio.Event | None = field(init=False, default=None)
    """Set when the call in progress has brought the rollout to rest or to an end; None while none is in progress."""
    _scope: trio.CancelScope | None = field(init=False, default=None)
    """Of the running activity, for a `cancel()` from elsewhere."""
    _cancel_asked: bool = field(init=False, default=False)
    """Whether `cancel()` has asked; it is never taken back."""
    _left_by: Outcome | None = field(init=False, default=None)
    """The failure with which the owner left the block while a call was in progress: it is told when that ends (L43)."""
    _struck: list[Interrupt] = field(init=False, factory=list)
    """KeyboardInterrupts and SystemExits to be raised at the end of the call."""
    _blamed: list[BaseException] = field(init=False, factory=list)
    """What the caller is to be told at the end of the call: its lifetime bug (L3), or a bug of the engine (L76)."""

    def __attrs_post_init__(self) -> None:
        clock = AnchoredClock.anchor()
        if not self.trace.transitions:
            self.trace.timing.start = clock.now()
        watcher = self._tell_activity if self.watched else None
        self._world = World(
            plan=self.plan, trace=self.trace, clock=clock, gate=StateGate(self), watcher=watcher, keeper=self.keeper
        )
        self._facts = RolloutFacts(self._world)

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
    async def step(self, messages: Said | None = None) -> bool:
        """Run one segment. Returns whether the exchange can go on; False at once if it is over (L10, L11).

        The first segment takes the task's prompt, then `messages` if any; later ones go on with `messages`. Raises
        `TypeError` with neither, `FormatError` for a dict that is no message, `IllegalTransition` before `open` and
        after the end, `RolloutBusyError` while a call is in progress.
        """
        await self._meet_an_abort()
        said = () if messages is None else as_messages(messages)
        if self.can_go_on and not said and not self._world.opening:
            raise TypeError("there is nothing to say: the task's prompt was taken, or it has none; pass messages (L10)")
        if self.can_go_on:
            await self._step(said)
        else:
            await self._drive("step")
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

    @protected
    def stop(self, condition: str) -> None:
        """End the exchange with this stop condition: at once in `waiting`, elsewhere at the next turn or the segment's
        end (L22).

        Never raises for a state that has no use for it.
        """
        if not isinstance(condition, str) or not condition:
            raise TypeError(f"stop() takes the stop condition as text, not {condition!r}")
        if not StateGate(self).concluded and self.trace.stop_condition is None:
            self.trace.stop_condition = condition
        if self._machine.takes(self.state, "stop"):
            self._fire(Outcome(trigger="stop", condition=condition))
        else:
            log.debug("stop(%r) of rollout %s in %s: noted", condition, self.trace.id, self.state)

    @protected
    def fail(self, error: BaseException) -> None:
        """Report a failure that the rollout could not see; recorded under its own type (L43).

        Raises `RolloutBusyError` while a call is in progress (L23). In a final state it is only logged.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"fail() takes the exception that made the rollout fail, not {error!r}")
        state = self._declared
        waits = self._world.permit_wait is not None
        if waits or (state.activity is not None and state.group != "cancellation"):
            raise RolloutBusyError(self._busy("fail"))
        if state.kind == "final" or state.activity is not None:
            log.warning("fail() of rollout %s, which is %s: %s", self.trace.id, self.state, text(error))
            return
        self._fire(_of_the_owner(error))

    @protected
    async def cancel(self) -> None:
        """Release everything and end as `aborted`; returns when the rollout is final (L72). Await it: alone it does
        nothing."""
        while self._settled is not None:
            self._ask_to_cancel()
            await self._settled.wait()
        if self._declared.activity is None:
            await self._drive("cancel")
        else:  # another process left it so, and nobody has gone on with it here
            self._cancel_asked = True
            await self._go()

    @protected
    async def go_on(self, runtime: Runtime | None) -> Trace:
        """Go on from the state in which the trace of another process ends, with the runtime that this left if it still
        stands (L73). What ran there when the process died begins anew; its span goes on."""
        if runtime is not None:
            take_over(self._world, runtime)
        await self._go()
        return self.trace

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
        return self._world.agent.left

    @property
    def activity(self) -> Activity:
        """What it is doing now: its state, since when, whom it waits for, how much time is left."""
        return activity_of(self._world, self._declared, attempt=self.attempt)

    @property
    def is_final(self) -> bool:
        """Whether the rollout has ended."""
        return self._declared.kind == "final"

    @property
    def can_go_on(self) -> bool:
        """Whether the exchange can go on: the rollout waits for its next segment."""
        return self._declared.kind == "resting" and self._declared.span == "agent"

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
        if error is not None and (is_cancelled() or interrupts(error) or _only_cancelled(error)):
            await self._abort()
            return
        try:
            if error is not None:
                if (settled := self._settled) is not None:
                    self._left_by = _of_the_owner(error)
                    await settled.wait()
                else:
                    self.fail(error)
            await self.close()
        finally:
            self._left_by = None
            await self._abort()  # if it was cancelled while it waited for another task's call (L70)

    # ---- the loop

    async def _step(self, said: tuple[Message, ...]) -> None:
        """Run a segment, once there is a permit for it: waiting is free (L12)."""
        if self._world.permit_wait is not None:
            raise RolloutBusyError(self._busy("step"))
        try:
            permit = await self.plan.services.flow.permit(self._world.await_permit)
        except BaseException:
            await self._abort()
            raise
        if permit is not None:  # else the exchange ended while it waited
            with permit:
                while self._settled is not None:  # another call came in the step in which the permit was granted
                    await self._settled.wait()
                if self.can_go_on:
                    await self._drive("step", said=said)

    def _ask_to_cancel(self) -> None:
        self._cancel_asked = True
        if self._scope is not None:
            self._scope.cancel()

    async def _abort(self) -> None:
        """Cancel, and see it through whatever strikes meanwhile (L70); nothing where a call has seen to its end."""
        if self.is_final:
            return
        if self._settled is not None:
            self._ask_to_cancel()  # at once: the child that waits starts a tick later, when one more phase could begin
        raised = await shielded(self.cancel, name=f"aborting {self.trace.id}")
        try:
            if raised is not None:
                raise bare(raised)
        finally:
            del raised  # a frame that keeps an exception which it raises is kept by it

    @property
    def _declared(self) -> State:
        return self._machine.declaration.states[self.state]

    async def _drive(self, trigger: str, *, failures: Sequence[Failure] = (), said: tuple[Message, ...] = ()) -> None:
        """Fire the caller's trigger, then run what the states call for until the rollout rests or ends."""
        if self._declared.activity is not None:
            raise RolloutBusyError(self._busy(trigger))
        before = self.state
        bug = self._try_to_fire(Outcome(trigger=trigger, failures=failures))
        try:
            if bug is not None:
                if self.state == before:
                    raise bug
                self._blame_engine(bug)  # it has moved: the new state needs its driver all the same (L76)
        finally:
            del bug  # a frame that keeps an exception which it raises is kept by it
        self._world.said = said
        await self._go()

    async def _go(self) -> None:
        """Run what the states call for until the rollout rests or ends; raise what the call must raise."""
        if self._declared.activity is not None:
            self._settled = settled = trio.Event()
            try:
                await self._run()
            finally:
                self._settled = self._scope = None
                if (left := self._left_by) is not None and self._declared.kind == "resting":
                    self._left_by = None
                    self._fire(left)
                settled.set()
        elif not self._blamed:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        await self._raise()

    async def _run(self) -> None:
        task = trio.lowlevel.current_task()
        while (state := self._declared).activity is not None:
            run = self._shielded if state.kind == "shielded" else self._active
            try:
                self._fire(await run(state))
            except BaseException as bug:
                if closes(bug, task):
                    raise
                self._blame_engine(bug)  # raised after the release: no state is left without its driver (L76)
                if self.state == state.name:
                    self._way_out(state)

    def _way_out(self, state: State) -> None:
        """Leave a state that a bug of the engine keeps from leaving by itself."""
        takes_cancel = self._machine.takes(state.name, "cancel")
        way_out = "cancel" if takes_cancel else self._machine.legal[state.name][0]
        if (stuck := self._try_to_fire(Outcome(trigger=way_out))) is not None and self.state == state.name:
            raise bare(stuck)

    async def _active(self, state: State) -> Outcome:
        """Run the activity of an active state within its bound, and judge its outcome (L14a)."""
        if self._cancelled():
            return Outcome(trigger="cancel")
        world, phase, bound = self._world, ACTIVE[state.activity or ""], state.bound or ""
        if (done := phase.idle(world)) is not None:
            return done
        ran = await run_activity(world, phase, bound, self._let_cancel)
        self._struck += interrupts(ran.came.error)
        remains: list[Failure] = []
        cancelled = self._cancelled()
        if (cancelled or not ran.ended_by_itself) and (leave := phase.leave(world)) is not None:
            remains = await self._leave(leave)
            cancelled = self._cancelled()
        verdict = judge(
            cancelled=cancelled,
            expired=ran.expired,
            timeout=lambda: phase.timeout(world, ran.elapsed, bound, ran.limit),
            error=ran.came.error,
            outcome=ran.came.value,
            blame=world.blame,
            standing=world.standing,
            kept=world.lost,
        )
        if verdict.warning is not None:
            self.trace.warn(*(TraceWarning(kind=verdict.warning, message=text) for text in verdict.lost))
        return evolve(verdict, failures=[*verdict.failures, *remains]) if remains else verdict

    async def _shielded(self, state: State) -> Outcome:
        """Run the activity of a shielded state to its end, and fire its one trigger whatever it did (L76)."""
        work = SHIELDED[state.activity or ""](self._world)
        if work is not None:
            self._met(await apart(work, name=f"{state.name} {self.trace.id}"))
        (trigger,) = self._machine.legal[state.name]
        return Outcome(trigger=trigger)

    async def _leave(self, leave: Callable[[], Awaitable[Failure | None]]) -> list[Failure]:
        """Stop what an activity left behind, shielded like a release (L13)."""
        remains: list[Failure] = []

        async def work() -> None:
            if (found := await leave()) is not None:
                remains.append(found)

        self._met(await shielded(work, name=f"leaving early {self.trace.id}"))
        return remains

    def _met(self, raised: BaseException | None) -> None:
        """What struck while shielded work went on: interrupts are kept for the end of the call, a bug is said."""
        struck = self._world.holdings.struck
        self._struck += [*interrupts(raised), *struck]
        struck.clear()
        if raised is not None and not interrupts(raised):
            self._blame_engine(bare(raised))

    def _blame_engine(self, bug: BaseException) -> None:
        log.error("a bug of the engine in rollout %s, state %s: %s", self.trace.id, self.state, text(bug), exc_info=bug)
        self._blamed.append(bug)

    def _let_cancel(self, scope: trio.CancelScope | None) -> None:
        self._scope = scope

    # ---- the only place where anything moves

    def _try_to_fire(self, outcome: Outcome) -> BaseException | None:
        """Fire; return what went wrong instead of raising it."""
        try:
            self._fire(outcome)
        except BaseException as bug:  # noqa: BLE001  (returned)
            return bug
        return None

    @protected
    def _fire(self, outcome: Outcome) -> None:
        """Let the machine move; then the effects that the row declares."""
        states = self._machine.declaration.states
        source = states[self.state]
        row = self._machine.fire(self, outcome.trigger, self._facts)
        target, taken = states[self.state], None
        try:
            if not row.same:
                taken = self._record(row, source, target, outcome.condition)
            self._account(row, outcome)
        finally:
            if not row.same and target.kind == "final":
                self.trace.is_completed, self.trace.ok = True, target.group == "closing"
                if self.trace.timing.scoring is None:
                    self.trace.rewards.clear()  # no signal ran, so whatever hooks wrote there is no verdict (L52)
                self.trace.ending = self._ending()
                self.trace.seal()
                self._world.forget()
            if taken is not None:
                self._tell(taken, target)

    def _ending(self) -> Ending | None:
        """How it ended; None only where the task's own code has spoilt the record."""
        try:
            return ending_of(self.trace, self.plan.services.endings, stops=self.plan.hooks.stop_names)
        except Exception as spoilt:  # noqa: BLE001  (hooks hold the trace, and may have written anything in it)
            log.error("rollout %s: no ending can be read off its trace: %s", self.trace.id, text(spoilt))
            return None

    def _account(self, row: Row, outcome: Outcome) -> None:
        """What becomes of the failures that came along: on the trace, a warning, or the caller's own (L3, L16, L40)."""
        if row.error == "raise":
            self._blamed.append(lifetime_error(self.plan.borrowed))
            return
        if not outcome.failures:
            return
        kept = [failure.error for failure in outcome.failures if failure.stands or row.error == "record"]
        self.trace.errors.extend(kept)
        if row.error == "warn":
            loose = [failure.error for failure in outcome.failures if not failure.stands]
            said = (f"{error.type}: {error.message}" for error in loose)
            self.trace.warn(*(TraceWarning(kind="after_stop", message=message) for message in said))

    def _record(self, row: Row, source: State, target: State, condition: str | None) -> TransitionRecord:
        """The transition, the stop condition that it sets if none is set, and the spans that it ends and begins
        (L80)."""
        trace, now = self.trace, self._world.clock.now()
        if row.sets is not None and trace.stop_condition is None:
            trace.stop_condition = condition if row.sets == "(given)" else row.sets
        taken = TransitionRecord(time=now, trigger=row.trigger, source=row.source, target=row.target, reason=row.reason)
        trace.transitions.append(taken)
        if self._world.permit_wait is not None:
            self._world.permit_wait.cancel()
        if source.span != target.span:
            if source.span is not None:
                model_time = 0.0 if self._world.session is None else self._world.session.model_time
                trace.timing.close(source.span, now, model_time)
            if target.span is not None:
                trace.timing.open(target.span, now)
        return taken

    def _tell(self, taken: TransitionRecord, target: State) -> None:
        listener = self._listener
        if listener is None:
            return
        self._struck += listener.on_transition(self, taken)
        if self.watched and target.activity is None:  # one with an activity tells by itself whom it waits for
            self._world.activity_changed()
        if target.kind == "final":
            self._listener = None
            self._struck += listener.on_finished(self)

    def _tell_activity(self) -> None:
        met = [] if self._listener is None else self._listener.on_activity(self)
        self._struck += met
        if met and self._scope is not None:
            self._scope.cancel()
        del met  # a frame that keeps an exception that was raised through it is kept by it

    # ---- what the loop asks

    def _cancelled(self) -> bool:
        """Questions 1 and 2 of L14a: is the caller cancelled, or was it interrupted; did `cancel()` ask?"""
        return is_cancelled() or bool(self._struck) or self._cancel_asked

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
            if struck:
                raise struck[0]
            if self._declared.group == "cancellation" and is_cancelled():
                await meet_cancellation()
                await trio.lowlevel.checkpoint()  # the deadline passed in this very step
            if blamed:
                raise blamed[0]
        finally:
            del struck, blamed  # a frame that keeps an exception which it raises is kept by it

    def _busy(self, verb: str) -> str:
        return (
            f"{verb}() of rollout {self.trace.id} while another call of it is in progress (state {self.state!r}); one "
            f"caller drives: wait for that call, or use close(), which waits, or stop() and cancel(), which may come "
            f"from anywhere (L23)"
        )


def _reached(trace: Trace) -> str:
    """The state in which a trace ends so far."""
    return trace.transitions[-1].target if trace.transitions else lifecycle().declaration.initial.name


def _of_the_owner(error: BaseException) -> Outcome:
    """The owner's failure: what was raised, leaf by leaf, under its own type (L43)."""
    told = [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled)] or [error]
    return Outcome(trigger="errored", failures=[Failure(error=record(leaf)) for leaf in told])


def _nobody() -> TaskError:
    return TaskError("the task has no prompt and nobody to open the exchange; give it a prompt, or has_user=True (L1)")


def _only_cancelled(error: BaseException) -> bool:
    return all(isinstance(leaf, trio.Cancelled) for leaf in leaves(error))

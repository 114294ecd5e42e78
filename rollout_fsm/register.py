"""The rollouts of one engine: it mints them, holds each until it is final, hears what happens to it, and has its trace
written (L57, L73, L75)."""

import logging
from typing import cast
from weakref import WeakValueDictionary

import trio
from attrs import define, field, frozen

from rollout_fsm.attempt import attempt
from rollout_fsm.errors import text
from rollout_fsm.identity import Identity
from rollout_fsm.keeping import Keeper
from rollout_fsm.observers import Observers
from rollout_fsm.outcome import Interrupt, pass_on, plain
from rollout_fsm.past import TO_BE_RETRIED
from rollout_fsm.plan import Plan
from rollout_fsm.pursuit import Pursuit, note
from rollout_fsm.rollout import Rollout
from rollout_fsm.services import EngineServices
from rollout_fsm.settings import AgentSettings, OneRollout, agent_config, settle, task_info
from rollout_fsm.task import Task
from rollout_fsm.trace import AgentInfo, GroupInfo, RunInfo, Trace, TransitionRecord

log = logging.getLogger("rollout_fsm")


@frozen(eq=False)
class Live:
    """What is known of a rollout that is not final."""

    observers: Observers
    pursuit: Pursuit


@define(eq=False)
class Register:
    """The rollouts that are not final, and who hears of them."""

    services: EngineServices
    run_info: RunInfo
    observers: Observers
    live: dict[Rollout, Live] = field(factory=dict, init=False)
    resting: dict[Rollout, Live] = field(factory=dict, init=False)
    """Finished attempts that others are to follow."""
    handed_out: list[tuple[trio.Event, frozenset[Identity]]] = field(factory=list, init=False)
    """What resumptions of this engine have taken upon themselves, each until its event."""
    closed: bool = field(default=False, init=False)
    """Whether the engine is being left."""
    _unwritten: "WeakValueDictionary[str, trio.Event]" = field(init=False, factory=WeakValueDictionary)
    """Finished traces on their way to the file, by id; the writer holds them."""

    def mint(
        self,
        task: Task,
        pursuit: Pursuit,
        *,
        settings: OneRollout | AgentSettings,
        group: GroupInfo | None = None,
        has_user: bool = False,
    ) -> Rollout:
        """A rollout from the beginning. Raises what does not fit together, and `RuntimeError` when the engine
        drains."""
        if self.services.flow.draining:
            raise RuntimeError("the engine drains: it starts no new rollout; open another engine for those")
        given = cast("OneRollout", settings)
        plan = settle(task, has_user=has_user, services=self.services, settings=given)
        trace = Trace(
            id=pursuit.next_id(given.get("id")),
            task=task_info(task),
            agent=AgentInfo(config=agent_config(plan)),
            run=self.run_info,
            group=given.get("group") or group,
        )
        return self.hold(plan, trace, pursuit, self.services.keep(trace, attempt=pursuit.attempt), settings)

    def hold(
        self, plan: Plan, trace: Trace, pursuit: Pursuit, keeper: Keeper | None, settings: OneRollout | AgentSettings
    ) -> Rollout:
        """The rollout of a trace, from the state in which that ends. It is held until it is final."""
        observers = self.observers.joined_by(settings.get("observers", ()))
        watched = observers.watch_activity
        rollout = Rollout(plan, trace, self, attempt=pursuit.attempt, watched=watched, keeper=keeper)
        self.live[rollout] = Live(observers, pursuit)
        for interrupt in observers.tell("on_trace", trace):
            raise interrupt
        return rollout

    def close(self) -> None:
        """The engine is being left: nothing more is minted, and nothing tried again."""
        self.closed = True
        self.services.flow.stop()

    def another_follows(self, rollout: Rollout) -> None:
        """The attempt that was to follow begins."""
        self.resting.pop(rollout)

    def none_follows(self, rollout: Rollout) -> list[Interrupt]:
        """If an attempt was to follow this one, it does not come: this one is the last after all, and says so."""
        if (live := self.resting.pop(rollout, None)) is None:
            return []
        note(rollout.trace, TO_BE_RETRIED, True)
        self._submit(rollout.trace, rollout.keeper)
        return live.observers.tell("on_finished", rollout.trace)

    async def settled(self, rollout: Rollout) -> Trace:
        """The trace of a rollout that has ended, once it is on disk or known to be lost (L73)."""
        written = self._unwritten.get(rollout.trace.id)
        if written is not None:
            await written.wait()
        return rollout.trace

    async def end_all(self) -> None:
        """Cancel every rollout that is left, and wait for its release (L75)."""
        async with trio.open_nursery() as nursery:
            for rollout in tuple(self.live):
                nursery.start_soon(self._end, rollout)
        await self.services.flow.driven.none()

    async def _end(self, rollout: Rollout) -> None:
        with trio.CancelScope(shield=True):  # what came out of a sibling's release cuts nobody's release short
            ended = await attempt(rollout.cancel)
        for bug in plain(ended.error):
            log.error("rollout %s could not be ended: %s", rollout.trace.id, text(bug), exc_info=bug)
        self.live.pop(rollout, None)
        pass_on(ended.error)

    # ---- what rollouts tell

    def on_transition(self, rollout: Rollout, transition: TransitionRecord) -> list[Interrupt]:
        """A transition was taken; it is kept, and observers are told. Raises nothing; returns the interrupts that they
        raised."""
        if rollout.keeper is not None:
            rollout.keeper.moved(transition)
        live = self.live.get(rollout)
        return [] if live is None else live.observers.tell("on_transition", rollout.trace, transition)

    def on_activity(self, rollout: Rollout) -> list[Interrupt]:
        """The rollout does something else now; observers are told. Raises nothing; returns the interrupts that they
        raised."""
        live = self.live.get(rollout)
        return [] if live is None else live.observers.tell("on_activity", rollout.trace, rollout.activity)

    def on_finished(self, rollout: Rollout) -> list[Interrupt]:
        """A rollout is final: it is let go of, written, told and logged (L57, L73, L75). Raises nothing.

        An attempt that is followed by another is not written: the last one tells of it.
        """
        trace, keeper, live = rollout.trace, rollout.keeper, self.live.pop(rollout)
        goes_on, borrowed = not self.services.flow.draining, rollout.plan.borrowed is not None
        met = live.pursuit.judge(trace, borrowed=borrowed, goes_on=goes_on, keeper=keeper)
        if (again := live.pursuit.again) is None:
            self._submit(trace, keeper)
            met += live.observers.tell("on_finished", trace)
        else:
            self.resting[rollout] = live
            met += live.observers.tell("on_retry", trace, again)
        stop = getattr(trace.errors[0], "type", "?") if trace.errors else trace.stop_condition
        said = "rollout done: id=%s task=%s reward=%s turns=%d stop=%s%s"
        retried = "" if again is None else f" retried in {again:g} s"
        log.info(said, trace.id, trace.task.type, trace.reward, trace.num_turns, stop, retried)
        try:
            return met
        finally:
            del met  # a frame that keeps an exception that was raised through it is kept by it

    def _submit(self, trace: Trace, keeper: Keeper | None) -> None:
        if (written := self.services.submit(trace, keeper)) is not None:
            self._unwritten[trace.id] = written

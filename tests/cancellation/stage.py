"""One play: the rollouts in it, what struck them in which state, and what their callers were told.

A stage notes; it judges nothing. What holds a rollout, a task or an exception alive is let go of before the play ends.
"""

import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field

from rollout_fsm import Rollout, RolloutTimeouts, Trace
from rollout_fsm.engine import Engine
from rollout_fsm.trace import TransitionRecord
from tests.cancellation.faults import FAULTS, INTERRUPTS
from tests.cancellation.life import Call, Effect, Life, all_of
from tests.cancellation.parties import CLOSED, HarnessByRuntime, ModelByPrompt, task_of
from tests.cancellation.plan import Plan
from tests.cancellation.schedule import Schedule
from tests.world import Act, ScriptedRuntime, World

if TYPE_CHECKING:
    from tests.cancellation.cases import Case

BOUNDS = RolloutTimeouts(close=3, release=7)
NOTED = ("runtime.prepare_setup", "runtime.prepare_execution", "runtime.kill")
"""Events that take no point of themselves."""
OTHERS = ("canceller", "waiter")
"""Tasks beside the caller's own, by name."""


@define(eq=False)
class Stage:
    """A play in progress, and what it left."""

    plan: Plan
    case: "Case"
    schedule: Schedule = field(init=False)
    lives: list[Life] = field(factory=list)
    means: list[str] = field(factory=list)
    """What has struck so far, whoever has met it."""
    raised: type[BaseException] | None = None
    """What came out of the engine's block."""
    left: list[type[BaseException]] = field(factory=list)
    """What came out of the block in which the rollouts were driven."""
    unended: list[str] = field(factory=list)
    """The states that rollouts were in when their `cancel()` returned, if not final."""
    left_in: list[str] = field(factory=list)
    """The states that the rollouts were in when that block was left."""
    leftover: int = 0
    """Tasks that were there after that block, and not before."""
    seconds: float = 0.0
    logged: list[str] = field(factory=list)
    """Errors in the log."""
    on_leaving: bool = False
    """Whether rollouts meet an interruption only when their block is left, as those of `run_all`."""
    _deferred: list[str] = field(factory=list)
    """Interruptions that wait for that."""
    _worlds: list[World] = field(factory=list)
    _engine: Engine | None = None
    _others: trio.Nursery | None = None
    _busy: int = 0
    """How many of the other tasks are running."""
    waiter: trio.CancelScope = field(factory=trio.CancelScope)

    def __attrs_post_init__(self) -> None:
        self.schedule = Schedule(
            {}, struck=lambda: self.met("interrupt"), here=lambda: [life.state for life in self.lives]
        )

    # ---- the parties

    def world(self, place: int) -> World:
        """The world of the so many-th rollout."""
        while place >= len(self._worlds):
            world = World(turns=self.case.turns)
            world.script |= {**dict.fromkeys(NOTED, trio.lowlevel.checkpoint), **self.case.script(world)}
            if (broken := self.plan.broken) is not None and broken.step != CLOSED:
                assert broken.step in self.case.steps, f"{self.case.name} has no {broken.step}"
                world.script[broken.step] = self._noting(FAULTS[broken.fault].act(bound_of(broken.step)))
            self._worlds.append(world)
        return self._worlds[place]

    def world_of(self, trace: Trace) -> World:
        place = trace.task.data.get("idx")
        assert isinstance(place, int)
        return self.world(place)

    def settings(self) -> dict[str, Any]:
        """What the rollouts are given, but for the task."""
        runtime = ScriptedRuntime(self.world(0)) if self.case.borrowed else self._make_runtime
        return {
            "harness": HarnessByRuntime(),
            "model": ModelByPrompt(self.world),
            "runtime": runtime,
            "timeouts": BOUNDS,
            "limits": self.case.limits,
        }

    def tasks(self, count: int = 1) -> list[Any]:
        """Tasks for that many rollouts, side by side."""
        found = []
        for place in range(count):
            task, relay = task_of(self.case.served, place)
            relay.to = self.world(place)
            found.append(task)
        return found

    def mint(self, engine: Engine) -> Rollout:
        """A rollout, not opened."""
        rollout = engine.rollout(self.tasks()[0], has_user=self.case.has_user, **self.settings())
        if self.case.stop is not None:
            rollout.stop(self.case.stop)
        return rollout

    def _make_runtime(self, name: str) -> ScriptedRuntime:
        return ScriptedRuntime(next(life.world for life in self.lives if life.trace.id == name), name)

    def slot_fails(self) -> None:
        """What closing a slot does."""
        if (broken := self.plan.broken) is not None and broken.step == CLOSED:
            raised = FAULTS[broken.fault].raised
            assert raised is not None
            if broken.fault in INTERRUPTS:
                self.met(broken.fault)
            raise raised()

    def _noting(self, act: Act) -> Act:
        async def noting() -> object:
            try:
                return await act()
            except (KeyboardInterrupt, SystemExit):
                assert self.plan.broken is not None
                self.met(self.plan.broken.fault)
                raise

        return noting

    # ---- what happens

    def begin(self, engine: Engine, others: trio.Nursery) -> None:
        self._engine, self._others = engine, others

    def end(self) -> None:
        """Let go of what would keep a rollout."""
        self.schedule.disarm()
        self._engine = self._others = None

    def look(self) -> None:
        """See what is still there; before the collector may run."""
        for life in self.lives:
            life.freed = life.rollout() is None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """In this block points are counted; afterwards no task is left of it."""
        tasks = trio.lowlevel.current_statistics().tasks_living
        self.schedule.armed = True
        try:
            yield
        except BaseException as raised:
            self.left.append(type(raised))
            raise
        finally:
            self.schedule.disarm()
            self.left_in = [life.state for life in self.lives]
            self.leftover = trio.lowlevel.current_statistics().tasks_living - tasks - self._busy

    async def call(self, rollout: Rollout, verb: str, *args: object, by: str = "main") -> object:
        """Call a verb, and note what it came to and what it had to come to."""
        life = self.lives[0]
        call = Call(verb, by)
        life.calls.append(call)
        try:
            call.returned = await getattr(rollout, verb)(*args)
            right = {"close": rollout.trace, "cancel": None}
            call.right = right.get(verb, rollout.can_go_on)
        except BaseException as raised:
            call.raised = type(raised)
            raise
        finally:
            call.pending = False
        return call.returned

    def start(self, work: Callable[[], Awaitable[object]], name: str) -> None:
        """Have another task do something."""

        async def working() -> None:
            try:
                await work()
            finally:
                self._busy -= 1

        assert self._others is not None
        self._busy += 1
        self._others.start_soon(working, name=name)

    # ---- interruptions

    def strike(self, means: str, scope: trio.CancelScope) -> Callable[[], None]:
        """What interrupts by these means."""

        def by_scope() -> None:
            self.met(means)
            scope.cancel()

        def by_waiter() -> None:
            self.met(means)
            self.waiter.cancel()

        def by_cancel() -> None:
            self.means.append(means)
            self.start(self._cancel, "canceller")

        means_of = {
            "scope": by_scope,
            "cancel": by_cancel,
            "interrupt": self.schedule.interrupt,
            "waiter": by_waiter,
        }
        return means_of[means]

    async def _cancel(self) -> None:
        rollout = self.lives[0].rollout()
        if rollout is None:  # it ended and was freed before this task ran
            return
        self.met("cancel")
        try:
            await self.call(rollout, "cancel", by="canceller")
        except (KeyboardInterrupt, SystemExit):
            return  # a fault of the step; the call has it
        finally:
            if not rollout.is_final:
                self.unended.append(rollout.state)
            del rollout

    def met(self, means: str) -> None:
        """The rollouts meet an interruption."""
        if means != "cancel":
            self.means.append(means)
        for life in self.lives:
            effect = self._effect(life, means)
            struck = {"scope": "main", "interrupt": "main", "waiter": "waiter", "cancel": ""}.get(means, life.driver)
            for call in life.pending:
                if call.by == struck:
                    call.effects.append(effect)
            if struck == "main" and (self.on_leaving or life.driver == "waiter"):
                self._deferred.append(means)
            elif means != "waiter" or life.driver == "waiter" or (effect.rests and effect in self._waited(life)):
                life.effects.append(effect)

    @staticmethod
    def _waited(life: Life) -> list[Effect]:
        return [effect for call in life.pending if call.by == "waiter" for effect in call.effects]

    def leaving(self) -> None:
        """The block of the rollouts is left, and they meet what struck it; if nothing did, those that `run_all` left
        are ended all the same."""
        for life in self.lives:
            means = self._deferred or (["leaving"] if self.on_leaving else [])
            life.effects += [self._effect(life, each) for each in means]
        self.on_leaving = False

    def _effect(self, life: Life, means: str) -> Effect:
        world = life.world
        return Effect(
            means=means,
            state=life.state,
            driver=life.driver,
            errors=tuple(error.type for error in life.trace.errors),
            begun=len(world.began),
            doing=world.began[-1] if world.began else "",
        )

    # ---- what the engine tells

    def on_trace(self, trace: Trace) -> None:
        assert self._engine is not None
        assert self._engine._register is not None
        rollout = next(rollout for rollout in self._engine._register.live if rollout.trace is trace)
        life = Life(self.world_of(trace), trace, weakref.ref(rollout))
        self.lives.append(life)
        if self.means and not self.on_leaving:
            life.effects.append(self._effect(life, self.means[-1]))

    def on_transition(self, trace: Trace, taken: TransitionRecord) -> None:
        if taken.trigger != "refused":  # it is fired by the task of a call
            task = trio.lowlevel.current_task()
            life = next(life for life in self.lives if life.trace is trace)
            life.driver = "main" if task is task._runner.main_task else task.name

    def on_finished(self, trace: Trace) -> None:
        next(life for life in self.lives if life.trace is trace).finished.append(all_of(trace))


def bound_of(step: str) -> float:
    """The bound of a step of the release, in seconds (L55)."""
    seconds = BOUNDS.release if step in ("harness.cleanup", "runtime.stop") else BOUNDS.close
    assert seconds is not None
    return seconds

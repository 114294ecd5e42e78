"""A plan, played on the real driver in virtual time: the outside parties, the callers, and what was seen of both.

Nothing is judged here. What the rollout did is noted firing by firing and call by call, for `rules` to judge.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import pytest
import trio
import trio.testing
from attrs import define, field
from trio.testing import MockClock

from rollout_fsm import (
    Exchange,
    HarnessSession,
    Message,
    OverlongPromptError,
    ProgramResult,
    ProviderError,
    Rollout,
    RolloutLimits,
    RolloutPolicy,
    RolloutTimeouts,
    TurnRefused,
    open_engine,
    trace_to_json,
)
from rollout_fsm.machine.declaration import Row
from rollout_fsm.machine.guards import Facts
from rollout_fsm.machine.lifecycle import Lifecycle, Subject
from tests.properties.plans import VERBS, Plan
from tests.properties.seen import AtRest, Called, Fired
from tests.world import EchoModel, OwnersError, ScriptedHarness, ScriptedRuntime, ScriptedSession, World, world_task

BOUNDS = RolloutTimeouts(boot=10, setup=10, agent=20, finalize=10, scoring=10, hook=5, drain=5, close=5, release=5)
WAYS: dict[str, Sequence[str]] = {
    "created": (),
    "booting": ("open",),
    "setup": ("open",),
    "waiting": ("open",),
    "stepping": ("open", "step hello"),
    "stopping": ("open", "step hello"),
    "stopped": ("open", "stop"),
    "failing": ("open", "fail"),
    "discarding": ("open", "fail", "close"),
    "failed": ("open", "fail", "close"),
    "aborting": ("open", "cancel"),
    "aborted": ("open", "cancel"),
}
"""What is called on the way to a state; by default `open` and `close`."""


ASKED = frozenset(
    ("harness.enter", "runtime.start", "task.setup", "harness.setup", "session.open", "segment", "finalize")
) | {"score.good", "score.steps"}
"""The parties whose failure is one of the activity that asks them."""


class PlannedSession(ScriptedSession):
    """Moves as the plan says."""

    async def run(self, messages: Sequence[Message] | None) -> ProgramResult | None:
        assert isinstance(self.world, Stage)
        stage = self.world
        stage.began.append("segment")
        self.conversation += messages or ()
        stage.begins("segment")
        moves: Sequence[str] = ("turn",)
        if not stage.armed:
            if stage.plan.start == "stopping":
                stage.tell("stop")
                with suppress(TurnRefused):
                    await self.turn()
            if stage.segments[:1] != [["swallow"]]:
                await stage.gate.wait()
        if stage.segments:
            moves = stage.segments.pop(0)
        for place, move in enumerate(moves):
            if move == "exit":
                stage.failed = True
                return ProgramResult(exit_code=1, stdout="", stderr="bad")
            if move == "insist":
                with suppress(TurnRefused, ProviderError):
                    await self.turn(f"{move} {place}")
            elif move == "turn":
                await self.turn(f"{move} {place}")
            else:
                await stage.behave(move, "segment")
        return None


class PlannedHarness(ScriptedHarness):
    """A harness that is entered once for the engine."""

    async def __aenter__(self) -> "PlannedHarness":
        await self.world.act("harness.enter")
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def open_session(self, exchange: Exchange) -> HarnessSession:
        session = PlannedSession(self.world, exchange)
        self.world.session = session
        await self.world.act("session.open")
        return session


@define(eq=False)
class Stage(World):
    """The world of a plan."""

    plan: Plan = field(factory=Plan)
    armed: bool = False
    """Whether the start state was reached: from now on the parties do what the plan says."""
    gate: trio.Event = field(factory=trio.Event)
    """What the parties that hang wait for."""
    over: bool = False
    """Whether the plan is through: nothing hangs any more."""
    waits: dict[str, list[str]] = field(factory=dict)
    segments: list[Sequence[str]] = field(factory=list)
    model_failed: bool = False
    agent_survives: bool = False
    turns_before: int = 0
    failed: bool = False
    score_failures: list[str] = field(factory=list)
    on_lost_runtime: list[str] = field(factory=list)
    fired: list[Fired] = field(factory=list)
    calls: list[Called] = field(factory=list)
    at_rest: list[AtRest] = field(factory=list)
    story: list[str] = field(factory=list)
    """What happened, line by line, for the reader of a failure."""
    driven: Rollout | None = None
    _tasks: dict[trio.lowlevel.Task, Called] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.waits = {party: list(answers) for party, answers in self.plan.says.items()}
        self.segments = list(self.plan.segments)
        asked = {*self.waits, "model", "runtime.kill", self.plan.held_at} - {None, "segment"}
        self.script = {str(party): partial(self.party, str(party)) for party in asked}

    # ---- what the parties do

    async def act(self, event: str) -> object:
        """A party is asked."""
        self.begins(event)
        return await super().act(event)

    def begins(self, event: str) -> None:
        """Note what begins on a runtime that is lost."""
        if event in ("segment", "finalize", "score.good", "score.steps") and "runtime_lost" in self.holds():
            self.on_lost_runtime.append(event)

    async def party(self, name: str) -> object:
        """What a party does that the plan speaks of."""
        if not self.armed and name == self.plan.held_at:
            if self.waits.get(name, [])[:1] != ["swallow"]:
                await self.gate.wait()
        elif not self.armed:
            await trio.lowlevel.checkpoint()
            return self.answered(name)
        waits = self.waits.get(name)
        return await self.behave(waits.pop(0) if waits else "answer", name)

    async def behave(self, what: str, name: str) -> object:
        """Do one of `ANSWERS`."""
        fine = False
        try:
            await trio.lowlevel.checkpoint()
            if what == "hang":
                await self.hang()
            elif what == "slow":
                await trio.sleep(3)
            elif what == "swallow":
                with suppress(trio.Cancelled):
                    await self.hang()
            elif what == "interrupt":
                assert self.driver is not None
                self.driver.interrupted = True
                raise KeyboardInterrupt
            elif what == "overlong":
                fine = True  # a budget, no failure
                raise OverlongPromptError("too long")
            elif what == "fail":
                self.failed = self.failed or name in ASKED
                if name.startswith("score."):
                    self.score_failures.append(f"{name} failed")
                raise ValueError(f"{name} failed")
            fine = what != "no"
            return self.answered(name) if fine else False
        finally:
            if name == "model":
                self.model_failed = not fine
            elif name == "runtime.kill":
                self.agent_survives = not fine

    def answered(self, name: str) -> object:
        """What a party gives that has nothing else to do."""
        return "reply" if name == "model" else True

    async def hang(self) -> None:
        """Wait until let go of."""
        if not self.over:
            await self.gate.wait()

    def let_go(self) -> None:
        """Whatever hangs goes on."""
        self.gate.set()
        self.gate = trio.Event()

    # ---- what the guards must find

    def holds(self) -> frozenset[str]:
        """The guards that hold, by what the parties did and the plan says."""
        plan, runtime = self.plan, self.runtime
        assert runtime is not None or not plan.borrowed
        facts = {
            "opens_conversation": plan.prompt or plan.has_user,
            "has_user": plan.has_user,
            "runtime_lost": plan.borrowed and runtime is not None and runtime.stopped,
            "stop_requested": self.rollout.trace.stop_condition is not None,
            "model_failed": self.model_failed,
            "agent_survives": self.agent_survives,
            "advanced": self.rollout.trace.num_turns > self.turns_before,
            "expiry_stops": plan.expiry_stops,
            "no_progress_fails": plan.no_progress_fails,
        }
        return frozenset(guard for guard, true in facts.items() if true)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note every firing of the rollout."""
        fire = Lifecycle.fire

        def noted(machine: Lifecycle, subject: Subject, trigger: str, facts: Facts) -> Row:
            seen = Fired(
                trigger=trigger,
                source=subject.state,
                time=trio.current_time(),
                holds=self.holds(),
                condition=self.rollout.trace.stop_condition,
                failed=self.failed,
                by=self._tasks.get(trio.lowlevel.current_task()),
            )
            self.fired.append(seen)
            if trigger == "step" and subject.state == "waiting":
                self.model_failed = self.agent_survives = False
                self.turns_before = self.rollout.trace.num_turns
            seen.row = fire(machine, subject, trigger, facts)
            self.failed = self.failed and not seen.moved
            self.tell_of(f"  {seen}")
            return seen.row

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Lifecycle, "fire", noted)
            yield

    # ---- the callers

    @property
    def driver(self) -> Called | None:
        """The call in progress, if one is."""
        return next((fired.by for fired in reversed(self.fired) if fired.by is not None and not fired.by.done), None)

    @property
    def pending(self) -> list[Called]:
        """The calls that have not returned."""
        return [call for call in self.calls if not call.done]

    def _calling(self, verb: str) -> Called:
        name, _, said = verb.partition(" ")
        rollout = self.rollout
        called = Called(
            verb=name, said=said or None, state=rollout.state, trace=trace_to_json(rollout.trace), fired=len(self.fired)
        )
        self.calls.append(called)
        return called

    def tell(self, verb: str) -> None:
        """Call `stop` or `fail`."""
        called = self._calling(verb)
        with self._noting(called):
            if verb == "stop":
                called.said = f"stop {len(self.calls)}"
                called.came = self.rollout.stop(called.said)
            else:
                called.came = self.rollout.fail(OwnersError("the owner's"))

    def ask(self, verb: str, calls: trio.Nursery) -> None:
        """Call an async verb, in a task of its own."""
        called, rollout = self._calling(verb), self.rollout
        verbs: dict[str, Callable[[], Awaitable[object]]] = {
            "open": rollout.open,
            "step": partial(rollout.step, called.said),
            "close": rollout.close,
            "cancel": rollout.cancel,
        }

        async def call() -> None:
            self._tasks[trio.lowlevel.current_task()] = called
            with called.scope, self._noting(called):
                came = await verbs[called.verb]()
                called.came = "the trace" if came is rollout.trace else came

        calls.start_soon(call)

    @contextmanager
    def _noting(self, called: Called) -> Iterator[None]:
        """Note what comes of a call; only a Cancelled goes on."""
        try:
            yield
        except BaseException as raised:
            called.came = type(raised)
            if isinstance(raised, trio.Cancelled):
                raise
        finally:
            called.done, called.left_in = True, self.rollout.state
            called.changed = trace_to_json(self.rollout.trace) != called.trace
            self.tell_of(f"  {called}")

    def tell_of(self, what: str) -> None:
        """A line of the story."""
        self.story.append(f"{trio.current_time():5g} s  {what}")

    async def rest(self) -> None:
        """Wait until nothing moves without time or a party; note how things stand."""
        await trio.testing.wait_all_tasks_blocked()
        self.at_rest.append(
            AtRest(
                state=self.rollout.state,
                pending=bool(self.pending),
                time=trio.current_time(),
                fired=len(self.fired),
            )
        )

    async def happen(self, what: str, calls: trio.Nursery) -> None:
        """One of `VERBS` or `CHANCES`, and what follows at once."""
        self.tell_of(what)
        if what in ("stop", "fail"):
            self.tell(what)
        elif what in VERBS:
            self.ask(what, calls)
        elif what == "let go":
            self.let_go()
        elif what == "cancel caller":
            if left := [call for call in self.pending if call.cancelled_in is None]:
                left[0].cancelled_in, left[0].cancelled_driving = self.rollout.state, self.driver is left[0]
                left[0].scope.cancel()
        elif what == "owner stops":
            if self.plan.borrowed and self.runtime is not None:
                self.runtime._stopped = True
        else:
            await trio.sleep(float(what))
        await self.rest()

    # ---- the play

    async def main(self) -> None:
        """From the mint to the end."""
        plan = self.plan
        async with open_engine(gateway=False) as engine:
            runtime = ScriptedRuntime(self) if plan.borrowed else lambda name: ScriptedRuntime(self, name)
            self.driven = engine.rollout(
                world_task(self, prompt="hello" if plan.prompt else None),
                has_user=plan.has_user,
                harness=PlannedHarness(self),
                model=EchoModel(self),
                runtime=runtime,
                timeouts=BOUNDS,
                limits=RolloutLimits(max_turns=plan.max_turns),
                policy=RolloutPolicy(
                    agent_expiry="stop" if plan.expiry_stops else "fail",
                    no_progress="fail" if plan.no_progress_fails else "stop",
                ),
            )
            async with trio.open_nursery() as calls:
                for verb in WAYS.get(plan.start, ("open", "close")):
                    await self.happen(verb, calls)
                assert self.rollout.state == plan.start, f"{plan} begins in {self.rollout.state}"
                self.armed = True
                for what in plan.does:
                    await self.happen(what, calls)
                self.over = True
                self.let_go()
                await self.happen("close", calls)

    @property
    def rollout(self) -> Rollout:
        assert self.driven is not None
        return self.driven


def play(plan: Plan) -> Stage:
    """Play a plan; what came of it."""
    stage = Stage(plan=plan)

    async def main() -> None:
        with trio.fail_after(10_000):
            await stage.main()

    trio._core._run._r.seed(plan.schedule)
    with stage.watching():
        trio.run(main, clock=MockClock(autojump_threshold=0))
    return stage

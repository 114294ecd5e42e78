"""A play: one scenario on the real engine, in virtual time. Nothing real is started, nothing sleeps."""

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio
from attrs import define, evolve, field
from trio.testing import MockClock

from rollout_fsm.engine import Engine, open_engine
from rollout_fsm.errors import TaskError
from rollout_fsm.interaction import Interaction
from rollout_fsm.simulation.box import ScriptedRuntime
from rollout_fsm.simulation.driver import Driver, Returned, raised
from rollout_fsm.simulation.outcome import Curtain, SimulatedOutcome, afterwards, outcome
from rollout_fsm.simulation.parties import Watch, parties
from rollout_fsm.simulation.reading import load_scenario
from rollout_fsm.simulation.retried import play_retried
from rollout_fsm.simulation.scenario import Scenario
from rollout_fsm.simulation.stage import Stage
from rollout_fsm.simulation.task import scripted_task
from rollout_fsm.simulation.timeline import Timeline
from rollout_fsm.task import Task
from rollout_fsm.trace_json import trace_to_json

HORIZON = 1e9
"""Virtual seconds after which a play is given up: then everything waits for something that will never come."""


def simulate(scenario: "Scenario | Mapping[str, Any] | str | Path", *, task: Task | None = None) -> SimulatedOutcome:
    """Play a scenario and return what came of it.

    `scenario`: as `load_scenario` returns it, or what that takes. `task`: yours instead of the scripted one, so that
    its own setup, stops, interceptors, signals, tool servers and bounds are played; what the scenario says about the
    task (`task.prompt`, `setup`, `stops`, `rewards` …) is then checked and left aside; your code is not among `events`.

    Raises `FormatError` for a scenario that cannot be read, `TypeError` for a task that the engine refuses (L31),
    `RuntimeError` inside a running event loop and for a play in which everything waits for ever. Ctrl-C ends the play
    and is raised; it is none of the interrupts that a scenario scripts.
    """
    script = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    with _heard() as interruption:
        played = trio.run(_play, script, task, interruption, clock=MockClock(autojump_threshold=0))
    if interruption.struck or played is None:
        raise KeyboardInterrupt
    return played


@define(eq=False)
class _Interruption:
    """Ctrl-C of whoever watches the play: it ends it, wherever it is."""

    struck: bool = False
    stop: Callable[[], object] | None = None

    def strike(self, number: int, frame: object) -> None:
        """What the signal does."""
        self.struck = True
        if self.stop is not None:
            with suppress(trio.RunFinishedError):
                self.stop()


@contextmanager
def _heard() -> Iterator[_Interruption]:
    """Within the block, Ctrl-C is heard here instead of in the play; where Python does not handle it, it stays so."""
    interruption = _Interruption()
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interruption
        return
    signal.signal(signal.SIGINT, interruption.strike)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


async def _play(scenario: Scenario, task: Task | None, interruption: _Interruption) -> SimulatedOutcome | None:
    refused: TypeError | None = None
    played: SimulatedOutcome | None = None
    with trio.move_on_after(HORIZON) as horizon:
        token = trio.lowlevel.current_trio_token()
        interruption.stop = partial(token.run_sync_soon, horizon.cancel)
        async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
            stage = Stage(scenario, Timeline(nursery))
            try:
                if scenario.retry is None:
                    played = await _Play(stage, engine, task).play()
                else:
                    played = await play_retried(stage, engine, task)
            except TypeError as error:  # raised below, outside of the nursery, which would make a group of it
                refused = error
            nursery.cancel_scope.cancel()
    if refused is not None:
        raise refused
    if interruption.struck:
        return None
    if horizon.cancelled_caught:
        raise RuntimeError(f"the play did not end: after {HORIZON:g} virtual seconds everything still waits")
    return played


@define(eq=False)
class _Play:
    """A play, from the mint to the aftermath."""

    stage: Stage
    engine: Engine
    task: Task | None
    driver: Driver = field(init=False)
    borrowed: ScriptedRuntime | None = field(init=False, default=None)
    returns: list[tuple[float, int, str, Returned]] = field(init=False, factory=list)
    """What calls of other tasks returned: when, which of them in the order in which they were made, the verb, what."""
    made: int = field(init=False, default=0)
    pending: int = field(init=False, default=0)
    """Calls of other tasks that were made and have not returned."""
    returned: trio.Event = field(init=False, factory=trio.Event)
    """Set when the last of them has."""

    async def play(self) -> SimulatedOutcome:
        stage, timeline = self.stage, self.stage.timeline
        task = scripted_task(stage) if self.task is None else self.task
        interaction = self._mint(task)
        stage.trace = trace = interaction.trace
        self.driver = driver = Driver(stage=stage, interaction=interaction, opens=bool(task.opening))
        with ExitStack() as cancelled:
            self._plan([cancelled.enter_context(trio.CancelScope()) for _ in stage.scenario.cancel_at])
            left_by = await self._drive()
        curtain = Curtain(
            state=driver.rollout.state,
            raised=left_by,
            clock=timeline.now,
            orphans=list(timeline.running),
            other_returns=(),
        )
        before = trace_to_json(trace)
        while self.pending:
            self.returned = trio.Event()
            await self.returned.wait()
        others = [(verb, returned) for _, _, verb, returned in sorted(self.returns, key=lambda one: one[:2])]
        came = outcome(stage, trace, driver, evolve(curtain, other_returns=others))
        return evolve(came, mutated_after_return=await afterwards(trace, before))

    def _mint(self, task: Task) -> Interaction:
        scenario, stage = self.stage.scenario, self.stage
        if scenario.borrowed_runtime:
            self.borrowed = ScriptedRuntime("borrowed", stage)
        settings = parties(stage, self.borrowed, [] if self.task is None else [Watch(stage.timeline)])
        if scenario.mode == "interaction":
            return self.engine.interaction(task, **settings)
        has_user = scenario.mode == "manual" and scenario.task.has_user
        return Interaction(self.engine.rollout(task, has_user=has_user, **settings))

    async def _drive(self) -> str | None:
        """Drive. Returns the type of what left the driver; a cancellation has ended with it."""
        try:
            await self.driver.drive()
        except trio.Cancelled:
            return trio.Cancelled.__name__
        except BaseException as error:  # noqa: BLE001  (an outcome, whatever it is)
            return type(error).__name__
        return None

    # ---- what happens from outside

    def _plan(self, scopes: list[trio.CancelScope]) -> None:
        scenario, timeline = self.stage.scenario, self.stage.timeline
        if (at := scenario.owner_stops_runtime_at) is not None and (box := self.borrowed) is not None:
            if at.before:
                box.go_down()
            else:
                timeline.plan(at, box.go_down)
        if (stop := scenario.caller_stop) is not None:
            say = partial(self.driver.rollout.stop, stop.condition)
            if stop.at.before:
                say()
            else:
                timeline.plan(stop.at, say)
        for call in scenario.other_calls:
            timeline.plan(call.at, self._another_task(call.verb))
        for trigger, scope in zip(scenario.cancel_at, scopes, strict=True):
            timeline.plan(trigger, scope.cancel)

    def _another_task(self, verb: str) -> Callable[[], None]:
        rollout, timeline = self.driver.rollout, self.stage.timeline

        async def close() -> Returned:
            return "trace" if await rollout.close() is rollout.trace else "another trace"

        async def fail() -> None:
            rollout.fail(TaskError("reported by another task"))

        verbs: Mapping[str, Callable[[], Awaitable[Returned]]] = {
            "open": rollout.open,
            "step": rollout.step,
            "close": close,
            "cancel": rollout.cancel,
            "fail": fail,
        }

        async def call(number: int) -> None:
            try:
                returned: Returned = await verbs[verb]()
            except trio.Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001  (an outcome, whatever it is)
                returned = raised(error)
            self.returns.append((timeline.now, number, verb, returned))
            self.pending -= 1
            if not self.pending:
                self.returned.set()

        def make() -> None:
            self.pending += 1
            self.made += 1
            timeline.call(partial(call, self.made))

        return make

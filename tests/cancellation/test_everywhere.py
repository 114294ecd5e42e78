"""Interrupted at its 1st, 2nd, 3rd … scheduling point, a rollout ends released, sealed and right; once, and twice
(L70, L71)."""

import gc
import random
import signal
import weakref
from collections.abc import Awaitable, Callable

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from rollout_fsm import ProviderError, Rollout, RolloutTimeouts, open_engine
from rollout_fsm.engine import Engine
from rollout_fsm.machine import load_machine
from rollout_fsm.machine.conformance import replay
from tests.world import EchoModel, ScriptedHarness, ScriptedRuntime, World, world_task

Drive = Callable[[Rollout], Awaitable[None]]


@define(eq=False)
class At(trio.abc.Instrument):
    """Acts when the k-th scheduling point after `armed` is reached: the task that just yielded has its abort function
    in place."""

    points: dict[int, Callable[[], None]]
    armed: bool = False
    seen: int = 0
    fired: int = 0
    where: list[str] = field(factory=list)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if not self.armed:
            return
        self.seen += 1
        if (act := self.points.pop(self.seen, None)) is not None:
            self.fired += 1
            self.where.append(" > ".join(frame.f_code.co_name for frame, _ in task.iter_await_frames()))
            act()


async def whole(rollout: Rollout) -> None:
    if await rollout.open():
        await rollout.step()
    await rollout.close()


async def three_segments(rollout: Rollout) -> None:
    going = await rollout.open()
    for text in ("one", "two", "three"):
        if going:
            going = await rollout.step(text)
    await rollout.close()


async def fails() -> object:
    raise ProviderError("the provider is down", status_code=503)


CASES: dict[str, tuple[Drive, dict[str, object], World]] = {
    "plain": (whole, {}, World()),
    "tools": (whole, {"served": ("a", "b")}, World(turns=2)),
    "interaction": (three_segments, {"has_user": True}, World()),
    "borrowed": (whole, {"borrowed": True}, World()),
    "failing": (whole, {}, World(script={"model": fails})),
    "stopped": (whole, {"stop": True}, World()),
}
MEANS = ("scope", "cancel", "interrupt")


@define(eq=False)
class Played:
    """What one interrupted run left behind."""

    world: World
    at: At
    rollout: "weakref.ref[Rollout] | None" = None
    state: str = ""
    raised: type[BaseException] | None = None
    trace: object = None
    leftover_tasks: int = 0


def play(name: str, means: str, *points: int) -> Played:
    drive, options, prototype = CASES[name]
    world = World(script=dict(prototype.script), turns=prototype.turns)
    played = Played(world, At({}))
    gc.disable()
    try:
        trio._core._run._r.seed(0)  # type: ignore[attr-defined]
        clock = MockClock(autojump_threshold=0)
        try:
            trio.run(_run, drive, options, played, means, points, clock=clock, instruments=[played.at])
        except KeyboardInterrupt:  # it came when the rollout was over, and the engine hands it on
            played.raised = KeyboardInterrupt
    finally:
        gc.enable()
    return played


async def _run(drive: Drive, options: dict[str, object], played: Played, means: str, points: tuple[int, ...]) -> None:
    world, at = played.world, played.at
    async with open_engine(gateway=False) as engine:
        rollout = _mint(engine, world, options)
        played.trace, played.rollout = rollout.trace, weakref.ref(rollout)
        if options.get("stop"):
            rollout.stop("operator")
        async with trio.open_nursery() as elsewhere:
            with trio.CancelScope() as scope:
                interrupts: dict[str, Callable[[], None]] = {
                    "scope": scope.cancel,
                    "cancel": lambda: elsewhere.start_soon(rollout.cancel),
                    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
                }
                at.points.update(dict.fromkeys(points, interrupts[means]))
                tasks = trio.lowlevel.current_statistics().tasks_living
                try:
                    async with rollout:
                        at.armed = True
                        await drive(rollout)
                except BaseException as raised:
                    played.raised = type(raised)
                    if means != "interrupt":
                        raise
                finally:
                    at.armed = False
                    at.points.clear()
                    played.state = rollout.state
                    played.leftover_tasks = trio.lowlevel.current_statistics().tasks_living - tasks


def _mint(engine: Engine, world: World, options: dict[str, object]) -> Rollout:
    served = options.get("served", ())
    assert isinstance(served, tuple)
    return engine.rollout(
        world_task(world, served=served),
        has_user=bool(options.get("has_user")),
        harness=ScriptedHarness(world),
        model=EchoModel(world),
        runtime=ScriptedRuntime(world) if options.get("borrowed") else lambda name: ScriptedRuntime(world, name),
        timeouts=RolloutTimeouts(close=5, release=5),
    )


def faults_of(name: str, means: str, played: Played) -> list[str]:
    """What is wrong with what an interruption left; empty when all is well."""
    from rollout_fsm import Trace

    faults, trace = [], played.trace
    assert isinstance(trace, Trace)
    borrowed = bool(CASES[name][1].get("borrowed"))
    released = [fault for fault in played.world.unreleased() if not (borrowed and fault.startswith("runtime"))]
    faults += released
    if not (trace.is_completed and trace.sealed):
        faults.append(f"not sealed: {trace}")
    if played.state not in ("completed", "failed", "aborted"):
        faults.append(f"left in {played.state}")
    if trace.ok is not (played.state == "completed"):
        faults.append(f"ok is {trace.ok} in {played.state}")
    faults += replay(load_machine(), [(t.trigger, t.source, t.target) for t in trace.transitions])
    for span in ("boot", "setup", "agent", "finalize", "scoring"):
        if (found := getattr(trace.timing, span)) is not None and found.end is None:
            faults.append(f"span {span} is open")
    if played.leftover_tasks > (played.at.fired if means == "cancel" else 0):  # those that called cancel()
        faults.append(f"{played.leftover_tasks} tasks left")
    allowed: dict[str, set[type[BaseException] | None]] = {
        "scope": {trio.Cancelled} if played.state == "aborted" else {trio.Cancelled, None},
        "cancel": {None},
        "interrupt": {KeyboardInterrupt},
    }
    if played.raised not in (allowed[means] if played.at.fired else {None}):
        faults.append(f"raised {played.raised}")
    if played.rollout is not None and played.rollout() is not None:
        faults.append("the rollout is kept by a cycle")
    return faults


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("name", CASES)
def test_interrupted_at_any_point_everything_is_released_and_the_trace_is_right(name: str, means: str) -> None:
    point = 0
    while True:
        point += 1
        played = play(name, means, point)
        faults = faults_of(name, means, played)
        assert not faults, f"{name}, {means} at point {point} ({played.at.where}): {faults}"
        if not played.at.fired:
            break
    assert point > 10


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("name", ["tools", "failing"])
def test_interrupted_a_second_time_nothing_is_cut_short(name: str, means: str) -> None:
    first = 0
    while True:
        first += 1
        # a few second points for each first, always the same: every pair would take minutes
        for gap in {1, 2, *random.Random(first).sample(range(3, 30), 3)}:
            played = play(name, means, first, first + gap)
            faults = faults_of(name, means, played)
            assert not faults, f"{name}, {means} at {first} and {first + gap} ({played.at.where}): {faults}"
        if not played.at.fired:
            break

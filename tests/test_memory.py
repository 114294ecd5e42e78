"""Freed with the collector off: no cycle keeps a rollout, its trace, its sessions or an exception alive, however it
ended."""

import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from rollout_fsm import (
    OverlongPromptError,
    ProgramResult,
    ProviderError,
    Request,
    Response,
    Rollout,
    RolloutLimits,
    RolloutTimeouts,
    Trace,
    TurnRefused,
    intercept,
    open_engine,
    stop,
)
from rollout_fsm.outcome import Outcome
from rollout_fsm.world import World as Inside
from tests.world import (
    Act,
    NoHooks,
    World,
    mint,
    raises,
    returns,
    sleeps,
    stray,
    swallows,
    whole,
    world_task,
)


class LoudError(Exception):
    """An exception that can be asked for."""


@pytest.fixture(autouse=True)
def _collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


class Kept:
    """Exceptions that were raised, by weak reference."""

    def __init__(self) -> None:
        self.raised: list[weakref.ref[BaseException]] = []

    def act(self, kind: type[BaseException] = LoudError, *args: object, depth: int = 3) -> Act:
        """Raise a fresh exception from some frames further down, with a cause."""

        def deeper(left: int) -> None:
            if left:
                return deeper(left - 1)
            error = type(f"Watched{kind.__name__}", (kind,), {})(*args)  # one of a class, so that it can be watched
            self.raised.append(weakref.ref(error))
            try:
                raise error from LoudError("the cause")
            finally:
                del error

        async def act() -> None:
            await trio.lowlevel.checkpoint()
            deeper(depth)

        return act


async def turn(world: World, said: str | None = None) -> Response:
    assert world.session is not None
    return await world.session.turn(said)


def hooks_that(act: Act, crossing: type, decorate: Any) -> type:
    async def hook(self: object, crossing: Any) -> Any:
        return await act()

    hook.__annotations__ = {"crossing": crossing}
    return type("Hooks", (NoHooks,), {"hook": decorate(hook)})


Drive = Callable[[Rollout], Awaitable[object]]
Case = Callable[[World, Kept], "tuple[dict[str, Act], dict[str, Any], Drive]"]


def scripted(event: str, make: Callable[[World, Kept], Act], drive: Drive = whole, **settings: Any) -> Case:
    return lambda world, kept: ({event: make(world, kept)}, settings, drive)


def hooked(crossing: type, decorate: Any, make: Callable[[World, Kept], Act]) -> Case:
    def case(world: World, kept: Kept) -> tuple[dict[str, Act], dict[str, Any], Drive]:
        return {}, {"task": world_task(world, hooks=hooks_that(make(world, kept), crossing, decorate))}, whole

    return case


async def cancelled_by_scope(rollout: Rollout) -> None:
    with trio.move_on_after(1):
        await whole(rollout)


async def cancelled_by_verb(rollout: Rollout) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(whole, rollout)
        await trio.testing.wait_all_tasks_blocked()
        await rollout.cancel()


async def in_a_block(rollout: Rollout) -> None:
    try:
        async with rollout:
            await rollout.open()
            raise LoudError
    except LoudError:
        return


async def cancelled_in_a_block(rollout: Rollout) -> None:
    with trio.move_on_after(1):
        async with rollout:
            await rollout.open()
            await trio.sleep_forever()


async def interrupted(rollout: Rollout) -> None:
    try:
        await whole(rollout)
    except KeyboardInterrupt:
        return
    raise AssertionError("it was not interrupted")


def refused_then(world: World, act: Act) -> Act:
    async def segment() -> object:
        world.rollout.stop("enough")
        with pytest.raises(TurnRefused):
            await turn(world)
        return await act()

    return segment


def hangs_up(world: World) -> Act:
    async def segment() -> None:
        with trio.move_on_after(1):
            await turn(world)
        await trio.sleep(10)

    return segment


def fails_then_returns(world: World) -> Act:
    async def segment() -> None:
        with pytest.raises(ProviderError):
            await turn(world)

    return segment


CASES: dict[str, Case] = {
    "completed": scripted("model", lambda world, kept: returns(None)),
    "completed with two segments": scripted(
        "model", lambda world, kept: returns(None), drive=lambda rollout: _two_segments(rollout)
    ),
    "runtime.start raises": scripted("runtime.start", lambda world, kept: kept.act()),
    "task.setup raises": scripted("task.setup", lambda world, kept: kept.act()),
    "task.setup raises a group": scripted(
        "task.setup", lambda world, kept: kept.act(ExceptionGroup, "g", [LoudError(), LoudError()])
    ),
    "task.setup hangs": scripted("task.setup", lambda world, kept: trio.sleep_forever),
    "task.setup swallows": scripted("task.setup", lambda world, kept: swallows),
    "task.setup strays": scripted("task.setup", lambda world, kept: stray),
    "session.open raises": scripted("session.open", lambda world, kept: kept.act()),
    "segment raises": scripted("segment", lambda world, kept: kept.act()),
    "segment hangs": scripted("segment", lambda world, kept: trio.sleep_forever),
    "segment exits": scripted("segment", lambda world, kept: returns(ProgramResult(exit_code=1, stderr="x"))),
    "segment hangs after a refusal": scripted(
        "segment", lambda world, kept: refused_then(world, trio.sleep_forever)
    ),
    "segment raises after a refusal": scripted("segment", lambda world, kept: refused_then(world, kept.act())),
    "the kill raises": lambda world, kept: (
        {"segment": trio.sleep_forever, "runtime.kill": kept.act()}, {}, whole,
    ),
    "model raises": scripted("model", lambda world, kept: kept.act()),
    "model raises typed": scripted("model", lambda world, kept: kept.act(ProviderError, "down")),
    "model is overlong": scripted("model", lambda world, kept: kept.act(OverlongPromptError, "long")),
    "model raises and the harness takes it": lambda world, kept: (
        {"model": kept.act(ProviderError, "down"), "segment": fails_then_returns(world)}, {}, whole,
    ),
    "model strays": scripted("model", lambda world, kept: stray),
    "a hang-up before the answer": lambda world, kept: (
        {"model": sleeps(5), "segment": hangs_up(world)}, {}, whole,
    ),
    "a hang-up and then a failing model": lambda world, kept: (
        {"model": _late(kept), "segment": hangs_up(world)}, {}, whole,
    ),
    "a hang-up after the answer": lambda world, kept: (
        {"segment": hangs_up(world)},
        {"task": world_task(world, hooks=hooks_that(sleeps(5), Response, intercept))},
        whole,
    ),
    "a hang-up and then a failing hook": lambda world, kept: (
        {"segment": hangs_up(world)}, {"task": world_task(world, hooks=hooks_that(_late(kept), Response, intercept))},
        whole,
    ),
    "a limit": lambda world, kept: ({}, {"limits": RolloutLimits(max_turns=0)}, whole),
    "a stop fires": hooked(Trace, stop, lambda world, kept: returns(True)),
    "a response stop fires": hooked(Response, stop, lambda world, kept: returns(True)),
    "a stop raises": hooked(Trace, stop, lambda world, kept: kept.act()),
    "a stop returns nonsense": hooked(Request, stop, lambda world, kept: returns(3)),
    "a request interceptor raises": hooked(Request, intercept, lambda world, kept: kept.act()),
    "a response interceptor raises": hooked(Response, intercept, lambda world, kept: kept.act()),
    "a response interceptor hangs": hooked(Response, intercept, lambda world, kept: trio.sleep_forever),
    "an interceptor raises typed": hooked(Response, intercept, lambda world, kept: kept.act(ProviderError, "x")),
    "finalize raises": scripted("finalize", lambda world, kept: kept.act()),
    "finalize hangs": scripted("finalize", lambda world, kept: trio.sleep_forever),
    "a reward raises": scripted("score.good", lambda world, kept: kept.act()),
    "a metric raises": scripted("score.steps", lambda world, kept: kept.act()),
    "a reward hangs": scripted("score.good", lambda world, kept: trio.sleep_forever),
    "closing raises": scripted("session.close", lambda world, kept: kept.act()),
    "cleanup raises": scripted("harness.cleanup", lambda world, kept: kept.act()),
    "stopping raises": scripted("runtime.stop", lambda world, kept: kept.act()),
    "stopping hangs": scripted("runtime.stop", lambda world, kept: trio.sleep_forever),
    "failed by its owner": scripted("model", lambda world, kept: returns(None), drive=in_a_block),
    "never opened": lambda world, kept: ({}, {}, lambda rollout: rollout.close()),
    "cancelled unopened": lambda world, kept: ({}, {}, lambda rollout: rollout.cancel()),
    "left to the engine": lambda world, kept: ({}, {}, lambda rollout: rollout.open()),
    "cancelled between calls": lambda world, kept: ({}, {}, cancelled_in_a_block),
    "interrupted in a reward": scripted("score.good", lambda world, kept: kept.act(KeyboardInterrupt), interrupted),
    "interrupted in a hook": lambda world, kept: (
        {}, {"task": world_task(world, hooks=hooks_that(kept.act(KeyboardInterrupt), Trace, stop))}, interrupted,
    ),
    **{
        f"{event} is interrupted": scripted(event, lambda world, kept: kept.act(KeyboardInterrupt), interrupted)
        for event in ("runtime.start", "task.setup", "segment", "model", "harness.cleanup")
    },
    **{
        f"{event} is cancelled by {how}": scripted(event, lambda world, kept: trio.sleep_forever, drive)
        for event in ("runtime.start", "task.setup", "segment", "model", "finalize", "score.good")
        for how, drive in (("its scope", cancelled_by_scope), ("the verb", cancelled_by_verb))
    },
    **{
        f"{event} swallows a cancellation and raises": scripted(
            event, lambda world, kept: _instead(kept), cancelled_by_scope
        )
        for event in ("task.setup", "segment", "model", "score.good")
    },
}  # fmt: skip


def _late(kept: Kept) -> Act:
    async def act() -> None:
        await trio.sleep(3)
        await kept.act()()

    return act


def _instead(kept: Kept) -> Act:
    async def act() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await kept.act()()

    return act


async def _two_segments(rollout: Rollout) -> None:
    await rollout.open()
    await rollout.step()
    await rollout.step("more")
    await rollout.close()


BOUNDS = RolloutTimeouts(setup=9, agent=30, finalize=9, scoring=9, hook=9, close=9, release=9, drain=9)


@pytest.mark.parametrize("case", CASES)
async def test_nothing_of_a_rollout_is_kept_by_a_cycle(case: str) -> None:
    world, kept = World(), Kept()
    script, settings, drive = CASES[case](world, kept)
    world.script |= script
    watched: dict[str, weakref.ref[Any]] = {}

    async def run() -> None:
        async with open_engine(gateway=False) as engine:
            rollout = mint(engine, world, **{"timeouts": BOUNDS, **settings})
            inside: Inside = rollout._world
            watched.update(rollout=weakref.ref(rollout), trace=weakref.ref(rollout.trace), world=weakref.ref(inside))
            del inside
            await drive(rollout)
            if world.session is not None:
                watched["harness session"] = weakref.ref(world.session)
        assert rollout.is_final

    await run()
    world.script.clear()
    world.session = world.runtime = None
    await trio.lowlevel.checkpoint()  # the event loop lets go of the task that it ran last
    alive = [name for name, reference in watched.items() if reference() is not None]
    assert alive == []
    assert [error() for error in kept.raised if error() is not None] == []


async def test_a_model_that_keeps_the_cancellation_that_it_was_sent_keeps_no_trace() -> None:
    world, kept = World(), list[trio.Cancelled]()
    watched: list[weakref.ref[Trace]] = []

    async def model() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as sent:
            kept.append(sent)
            raise

    async def run() -> None:
        async with open_engine(gateway=False) as engine:
            rollout = mint(engine, world)
            watched.append(weakref.ref(rollout.trace))
            await cancelled_by_scope(rollout)
            assert rollout.state == "aborted"

    world.script["model"] = model
    await run()
    world.session = world.runtime = None
    await trio.lowlevel.checkpoint()  # the event loop lets go of the task that it ran last
    assert len(kept) == 1
    assert watched[0]() is None


async def test_a_trace_that_is_kept_keeps_nothing_else() -> None:
    world = World(script={"model": raises(ValueError)})
    traces: list[Trace] = []

    async def run() -> "weakref.ref[Rollout]":
        async with open_engine(gateway=False) as engine:
            rollout = mint(engine, world)
            await whole(rollout)
            traces.append(rollout.trace)
        return weakref.ref(rollout)

    reference = await run()
    assert reference() is None
    assert traces[0].errors


async def test_an_exchange_that_a_harness_keeps_keeps_no_rollout() -> None:
    world = World()
    exchanges: list[object] = []

    async def segment() -> None:
        exchanges.append(world.exchange)
        await turn(world)

    world.script["segment"] = segment

    async def run() -> "weakref.ref[Rollout]":
        async with open_engine(gateway=False) as engine:
            rollout = mint(engine, world)
            await whole(rollout)
        return weakref.ref(rollout)

    reference = await run()
    assert reference() is None
    assert len(exchanges) == 1


async def test_an_engine_holds_a_rollout_until_it_is_final_and_no_longer() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        await mint(engine, world).open()
        assert world.minted is not None
        assert world.minted() is not None  # nobody else holds it
        await world.rollout.close()
        assert world.minted() is None
        assert Outcome(trigger="open").failures == ()


async def test_the_rollouts_of_a_batch_are_freed_as_they_finish() -> None:
    world = World()
    alive: list[weakref.ref[Trace]] = []

    class Observer:
        def on_trace(self, trace: Trace) -> None:
            alive.append(weakref.ref(trace))

    from tests.world import EchoModel, ScriptedHarness, ScriptedRuntime

    async with open_engine(gateway=False, observers=[Observer()]) as engine:
        batch = engine.run_all(
            [world_task(world)] * 5,
            max_concurrent=1,
            harness=ScriptedHarness(world),
            model=EchoModel(world),
            runtime=lambda name: ScriptedRuntime(world, name),
        )
        async with batch as traces:
            async for trace in traces:
                assert trace.ok
                del trace
        await trio.lowlevel.checkpoint()
        assert [reference() for reference in alive if reference() is not None] == []

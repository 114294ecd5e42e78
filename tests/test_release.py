"""Closing, releasing and cancelling: each step once and bounded, whatever the others did; a scored trace is never lost;
no bug leaves a rollout behind (L50, L51, L55, L70-L72, L76)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from rollout_fsm import IllegalTransition, Rollout, RolloutTimeouts, TurnRefused, check_trace, open_engine
from rollout_fsm.outcome import Outcome
from rollout_fsm.phases import ACTIVE, SHIELDED, Phase
from rollout_fsm.world import World as Inside
from tests.world import (
    HELD_AT,
    STATES,
    Act,
    World,
    error_types,
    kinds,
    mint,
    play,
    raises,
    sleeps,
    warnings,
    whole,
    world_task,
)

BOUNDS = RolloutTimeouts(close=3, release=7)
RELEASES = ["session.close", "tools.stop:b", "tools.stop:a", "harness.cleanup", "runtime.stop"]
"""What is awaited of a release, newest first."""

ENDINGS: dict[str, tuple[dict[str, Act], str]] = {
    "completed": ({}, "completed"),
    "failed": ({"model": raises(ValueError, "down")}, "failed"),
}


@pytest.mark.parametrize("ending", ["completed", "failed", "aborted"])
async def test_every_step_may_hang_and_the_whole_takes_the_sum(ending: str) -> None:
    script, ends = ENDINGS.get(ending, ({}, "aborted"))
    world = World(script={**script, **dict.fromkeys(RELEASES, trio.sleep_forever)})

    async def drive(rollout: Rollout) -> None:
        if ending == "aborted":
            await rollout.open()
            await rollout.cancel()
        else:
            await whole(rollout)

    started = trio.current_time()
    trace = await play(world, task=world_task(world, served=("a", "b")), timeouts=BOUNDS, drive=drive)
    assert trio.current_time() - started == 3 * 3 + 2 * 7
    assert (world.state, kinds(trace)) == (ends, ["close"] * 3 + ["cleanup", "leaked"])


async def test_a_second_and_a_third_cancellation_cut_no_step_short() -> None:
    world = World(script=dict.fromkeys(RELEASES, sleeps(2)))
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = mint(engine, world, task=world_task(world, served=("a", "b")))
        await rollout.open()
        with trio.CancelScope() as outer, trio.CancelScope() as inner:
            nursery.start_soon(_at, 1, outer.cancel)
            nursery.start_soon(_at, 3, inner.cancel)
            nursery.start_soon(rollout.cancel)
            await trio.testing.wait_all_tasks_blocked()
            await rollout.close()
    assert rollout.state == "aborted"
    assert [event for event in world.ended if event in RELEASES] == RELEASES
    assert warnings(rollout.trace) == []


async def _at(seconds: float, act: Callable[[], object]) -> None:
    await trio.sleep(seconds)
    act()


# ---- cancelled in each state


@pytest.mark.parametrize("state", [state for state in STATES if state in HELD_AT])
async def test_a_scope_that_is_cancelled_during_a_call(state: str) -> None:
    """L70, L71: the abort is released and re-raised; in a shielded state it is held back."""
    world = World()
    gate = trio.Event()
    returned: list[object] = []
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)

        async def refused_then_hang() -> None:
            rollout.stop("enough")
            with trio.CancelScope(shield=True):
                assert world.session is not None
                with pytest.raises(TurnRefused, match="enough"):
                    await world.session.turn()
            await gate.wait()

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                world.script[HELD_AT[state]] = refused_then_hang if state == "stopping" else gate.wait
                if state == "discarding":
                    world.script["model"] = raises(ValueError)
                if state == "aborting":
                    world.script["model"] = lambda: _cancel(rollout, nursery)

                async def strike() -> None:
                    await trio.testing.wait_all_tasks_blocked()
                    assert rollout.state == state
                    scope.cancel()
                    await trio.testing.wait_all_tasks_blocked()
                    gate.set()

                nursery.start_soon(strike)
                if await rollout.open() and await rollout.step():
                    pass
                returned.append(await rollout.close())
                await trio.lowlevel.checkpoint()
    ends = {"releasing": "completed", "discarding": "failed"}.get(state, "aborted")
    assert rollout.state == ends
    if state != "aborting":  # there the call has its answer already; the cancellation meets the caller afterwards
        assert returned == ([rollout.trace] if ends != "aborted" else [])
    assert scope.cancelled_caught
    assert check_trace(rollout.trace) == []
    assert world.unreleased() == []
    assert rollout.trace.reward == (1.0 if ends == "completed" else rollout.trace.reward)
    if state == "closing":
        assert "finalize" not in world.began


async def _cancel(rollout: Rollout, nursery: trio.Nursery) -> None:
    nursery.start_soon(rollout.cancel)
    await trio.sleep_forever()


# ---- the context manager: L70


class MineError(Exception):
    """The body's own."""


async def test_left_normally_the_rollout_is_closed() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        async with mint(engine, world) as rollout:
            await rollout.open()
            await rollout.step()
        assert (rollout.state, rollout.trace.reward) == ("completed", 1.0)
        async with rollout:  # a final one has nothing to end
            pass


async def test_left_by_an_exception_it_is_failed_with_that_and_the_exception_comes_out_bare() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(MineError) as raised:  # noqa: PT012
            async with mint(engine, world) as rollout:
                await rollout.open()
                raise MineError("oops")
        assert raised.value.args == ("oops",)
        assert (rollout.state, [(error.type, error.message) for error in rollout.trace.errors]) == (
            "failed", [("MineError", "oops")],
        )  # fmt: skip
    assert world.unreleased() == []
    assert "finalize" not in world.began


async def test_left_by_an_exception_after_the_end_nothing_is_changed() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(MineError):  # noqa: PT012
            async with mint(engine, world) as rollout:
                await whole(rollout)
                raise MineError
        assert (rollout.state, rollout.trace.errors) == ("completed", [])


@pytest.mark.parametrize("opened", [False, True])
async def test_left_by_a_cancellation_between_calls_it_is_cancelled(opened: bool) -> None:
    world = World(script={"harness.cleanup": sleeps(1)})
    async with open_engine(gateway=False) as engine:
        with trio.move_on_after(5) as scope:
            async with mint(engine, world) as rollout:
                if opened:
                    await rollout.open()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert (rollout.state, rollout.trace.stop_condition, rollout.trace.errors) == ("aborted", "cancelled", [])
    assert world.unreleased() == []


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
async def test_left_by_an_interrupt_it_is_cancelled(interrupt: type[BaseException]) -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(interrupt):  # noqa: PT012
            async with mint(engine, world) as rollout:
                await rollout.open()
                raise interrupt
        assert (rollout.state, rollout.trace.errors) == ("aborted", [])


@pytest.mark.parametrize("leaves", ["normally", "by an exception"])
async def test_left_while_another_tasks_call_runs_it_waits_for_that_call(leaves: str) -> None:
    world = World(script={"model": sleeps(20)})
    results: list[object] = []
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = mint(engine, world)

        async def step() -> None:
            results.append(await rollout.step())

        try:
            async with rollout:
                await rollout.open()
                nursery.start_soon(step)
                await trio.testing.wait_all_tasks_blocked()
                started = trio.current_time()
                if leaves == "by an exception":
                    raise MineError
        except MineError:
            assert leaves == "by an exception"
        assert trio.current_time() - started == 20
        assert results == [leaves == "normally"]  # after the owner's failure nothing can go on
        assert rollout.state == ("completed" if leaves == "normally" else "failed")
        assert error_types(rollout.trace) == ([] if leaves == "normally" else ["MineError"])


async def test_left_by_a_cancellation_it_cancels_the_call_of_the_other_task() -> None:
    world = World(script={"model": sleeps(20)})
    results: list[object] = []
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = mint(engine, world)

        async def step() -> None:
            results.append(await rollout.step())

        started = trio.current_time()
        with trio.move_on_after(3) as scope:
            async with rollout:
                await rollout.open()
                nursery.start_soon(step)
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert trio.current_time() - started == 3
        assert (rollout.state, results) == ("aborted", [False])


async def test_cancelled_while_it_waits_for_another_tasks_call_it_cancels_that_call() -> None:
    world = World(script={"model": sleeps(20)})
    results: list[object] = []
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = mint(engine, world)

        async def step() -> None:
            results.append(await rollout.step())

        started = trio.current_time()
        with trio.move_on_after(3) as scope:
            async with rollout:
                await rollout.open()
                nursery.start_soon(step)
                await trio.testing.wait_all_tasks_blocked()
        assert scope.cancelled_caught
        assert trio.current_time() - started == 3
        assert (rollout.state, results) == ("aborted", [False])


async def test_a_block_that_is_dropped_as_a_generator_is_ended_by_the_engine() -> None:
    world = World()

    async def body(rollout: Rollout) -> Any:
        async with rollout:
            await rollout.open()
            yield 1

    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        generator = body(rollout)
        assert await anext(generator) == 1
        step = generator.athrow(GeneratorExit)
        with pytest.raises(GeneratorExit):
            step.send(None)
        assert rollout.state == "waiting"
    assert rollout.state == "aborted"
    assert world.unreleased() == []


# ---- bugs of the engine: L76


class EngineBugError(Exception):
    """The engine's own."""


async def _no_outcome(world: Inside) -> Any:
    return None


async def _unknown(world: Inside) -> Outcome:
    return Outcome(trigger="nonsense")


async def _unfit(world: Inside) -> Outcome:
    return Outcome(trigger="open")


BUGS: dict[str, tuple[Callable[[Inside], Awaitable[Any]], type[Exception]]] = {
    "no outcome": (_no_outcome, TypeError),
    "an unknown trigger": (_unknown, IllegalTransition),
    "a trigger that the state does not take": (_unfit, IllegalTransition),
}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("activity", ACTIVE)
async def test_an_activity_that_tells_nonsense_ends_aborted_released_and_raised(
    activity: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, raised = BUGS[bug]
    broken = Phase(run=run, boundary=ACTIVE[activity].boundary, doing=activity)
    monkeypatch.setattr("rollout_fsm.rollout.ACTIVE", {**ACTIVE, activity: broken})
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        with pytest.raises(raised):
            await whole(rollout)
        assert rollout.state == "aborted"
        assert await rollout.close() is rollout.trace
    assert world.unreleased() == []
    assert check_trace(rollout.trace) == []


@pytest.mark.parametrize("activity", ACTIVE)
async def test_a_judgement_that_raises_ends_aborted_released_and_raised(
    activity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rollout_fsm import outcome

    def broken(**given: Any) -> Outcome:
        if rollout.state == {
            "boot": "booting",
            "segment": "stepping",
            "finalize": "finalizing",
            "score": "scoring",
        }.get(activity, activity):
            raise EngineBugError("of the engine")
        return outcome.judge(**given)

    monkeypatch.setattr("rollout_fsm.rollout.judge", broken)
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        with pytest.raises(EngineBugError):
            await whole(rollout)
        assert rollout.state == "aborted"
    assert world.unreleased() == []
    assert rollout.trace.sealed


@pytest.mark.parametrize("activity", ACTIVE)
async def test_an_activity_that_raises_by_itself_fails_like_the_code_it_calls(
    activity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(world: Inside) -> Outcome:
        raise EngineBugError("of the engine")

    phase = Phase(run=broken, boundary=ACTIVE[activity].boundary, doing=activity)
    monkeypatch.setattr("rollout_fsm.rollout.ACTIVE", {**ACTIVE, activity: phase})
    world = World()
    trace = await play(world)
    assert (world.state, error_types(trace)) == ("failed", [ACTIVE[activity].boundary.__name__])


@pytest.mark.parametrize("activity", SHIELDED)
async def test_a_shielded_activity_that_raises_still_fires_its_one_trigger_and_is_raised(
    activity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(world: Inside) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            if (real := SHIELDED[activity](world)) is not None:
                await real()
            raise EngineBugError("of the engine")

        return work

    monkeypatch.setattr("rollout_fsm.rollout.SHIELDED", {**SHIELDED, activity: broken})
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = mint(engine, world)
        with pytest.raises(EngineBugError):
            await whole(rollout)
        assert rollout.is_final
        assert [taken.trigger for taken in rollout.trace.transitions].count("released") == 1
    assert world.unreleased() == []
    assert check_trace(rollout.trace) == []

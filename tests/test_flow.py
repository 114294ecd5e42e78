"""Pausing, draining and the permits of segments (L12, L22, L72)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from rollout_fsm import (
    Interaction,
    Rollout,
    RolloutBusyError,
    RolloutPolicy,
    RolloutTimeouts,
    Trace,
    check_trace,
    open_engine,
    stop,
)
from rollout_fsm.engine import Engine
from tests.world import (
    World,
    agent,
    error_types,
    sleeps,
    warnings,
    world_task,
)


def interaction(engine: Engine, world: World, **given: Any) -> Interaction:
    return engine.interaction(world_task(world, prompt=None), **agent(world, **given))


@asynccontextmanager
async def while_it_runs(
    *schedule: tuple[float, Callable[[Engine], object]], **engine: Any
) -> AsyncIterator[tuple[Engine, Callable[[], float]]]:
    """An engine, and a clock that began with it; at so many seconds something is done to it."""
    began = trio.current_time()

    def clock() -> float:
        return trio.current_time() - began

    async def act() -> None:
        for when, do in schedule:
            await trio.sleep_until(began + when)
            do(opened)

    async with open_engine(gateway=False, **engine) as opened, trio.open_nursery() as nursery:
        nursery.start_soon(act)
        yield opened, clock
        nursery.cancel_scope.cancel()


PAUSE: Callable[[Engine], object] = Engine.pause
RESUME: Callable[[Engine], object] = Engine.resume
DRAIN: Callable[[Engine], object] = Engine.drain


def thinking(world: World, seconds: float) -> World:
    """The harness takes so many seconds before each of its turns."""

    async def segment() -> None:
        session = world.session
        assert session is not None
        for turn in range(world.turns):
            await trio.sleep(seconds)
            await session.turn(f"go on {turn}" if turn else None)

    world.script["segment"] = segment
    return world


# ---- pause


async def test_a_pause_lets_running_calls_finish_and_holds_new_turns() -> None:
    world = World(turns=2, script={"model": sleeps(10)})
    async with while_it_runs((5, PAUSE), (100, RESUME)) as (engine, clock):
        trace = await engine.run(world_task(world), **agent(world))
        assert clock() == 110
    assert [call.time.end - call.time.start for call in trace.calls if call.time.end] == [10, 10]
    assert (trace.ok, trace.num_turns) == (True, 2)
    assert check_trace(trace) == []


async def test_a_pause_awaited_is_over_when_no_turn_goes_on() -> None:
    world = World(turns=2, script={"model": sleeps(10)})
    async with while_it_runs() as (engine, clock), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: engine.run(world_task(world), **agent(world)))
        await trio.sleep(3)
        await engine.pause()
        assert (clock(), world.began.count("model"), world.left.count("model")) == (10, 1, 1)
        await trio.sleep(500)
        assert world.began.count("model") == 1
        engine.resume()


async def test_a_pause_of_an_idle_engine_is_quiet_at_once_and_may_be_said_twice() -> None:
    world = World(script={"model": sleeps(10)})
    async with while_it_runs() as (engine, clock):
        await engine.pause()
        await engine.pause()
        assert clock() == 0
        engine.resume()
        engine.resume()
        assert (await engine.run(world_task(world), **agent(world))).ok


@pytest.mark.parametrize(
    ("pauses", "ended"),
    [
        ((), 30),
        (((10, PAUSE), (60, RESUME)), 80),
        (((0, PAUSE), (50, RESUME)), 80),
        (((10, PAUSE), (20, RESUME), (25, PAUSE), (65, RESUME)), 80),
        (((30, PAUSE), (90, RESUME)), 30),
    ],
)
async def test_the_agent_budget_stands_still_while_the_engine_is_paused(pauses: Any, ended: float) -> None:
    world = World(script={"segment": sleeps(1_000)})
    async with while_it_runs(*pauses) as (engine, clock):
        trace = await engine.run(world_task(world), timeouts=RolloutTimeouts(agent=30), **agent(world))
        assert clock() == ended
    assert error_types(trace) == ["HarnessError"]
    assert "after 30 s" in trace.errors[0].message


async def test_what_a_segment_spends_is_counted_without_the_pause() -> None:
    world = World(turns=1, script={"model": sleeps(10)})
    async with while_it_runs((5, PAUSE), (100, RESUME), (105, PAUSE), (200, RESUME)) as (engine, _):  # noqa: SIM117
        async with interaction(engine, world, timeouts=RolloutTimeouts(agent=1_000)) as chat:
            await chat.turn("one")
            assert chat.rollout.time_remaining == 995  # from 0 to 10, and the clock stood still from 5 on
            await trio.sleep(100)
            await chat.turn("two")
            assert chat.rollout.time_remaining == 985  # from 200 to 210


async def test_a_hook_has_its_whole_bound_beside_a_pause() -> None:
    class Slow:
        @stop
        async def slow(self, trace: Trace) -> bool:
            await trio.sleep(100)
            return False

    world = World()
    task = world_task(world, hooks=Slow)
    async with while_it_runs((10, PAUSE), (85, RESUME)) as (engine, _):
        assert (await engine.run(task, timeouts=RolloutTimeouts(hook=60), **agent(world))).ok
    async with while_it_runs((10, PAUSE), (30, RESUME)) as (engine, clock):
        trace = await engine.run(task, timeouts=RolloutTimeouts(hook=60), **agent(World()))
        assert clock() == 80
    assert "timed out after 60 s (timeouts.hook = 60 s)" in trace.errors[0].message


async def test_the_drain_of_a_refused_harness_stands_still_too() -> None:
    class Once:
        @stop
        def once(self, trace: Trace) -> bool:
            return trace.num_turns == 1

    world = World()

    async def segment() -> None:
        session = world.session
        assert session is not None
        await session.turn()
        with pytest.raises(Exception, match="once"):
            await session.turn("more")
        await trio.sleep(1_000)

    world.script["segment"] = segment
    task = world_task(world, hooks=Once)
    async with while_it_runs((10, PAUSE), (110, RESUME)) as (engine, clock):
        trace = await engine.run(task, timeouts=RolloutTimeouts(drain=30), **agent(world))
        assert clock() == 130
    assert (trace.ok, trace.stop_condition) == (True, "once")


async def test_a_cancellation_passes_through_a_pause() -> None:
    world = World()
    async with while_it_runs((0, PAUSE)) as (engine, clock):
        rollouts = []
        with trio.move_on_after(20):
            async with engine.rollout(world_task(world), **agent(world)) as rollout:
                rollouts.append(rollout)
                await rollout.open()
                await rollout.step()
        assert clock() == 20
        assert (rollouts[0].state, world.unreleased()) == ("aborted", [])
        engine.resume()


async def test_an_engine_can_be_left_while_it_is_paused() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        rollout = engine.rollout(world_task(world), **agent(world))
        async with trio.open_nursery() as nursery:
            await rollout.open()
            nursery.start_soon(rollout.step)
            engine.pause()
            await trio.testing.wait_all_tasks_blocked()
            await rollout.cancel()
    assert (rollout.state, world.unreleased()) == ("aborted", [])


async def test_everything_but_turns_goes_on_in_a_pause() -> None:
    world = World(turns=0, script={"segment": sleeps(0), "score.good": sleeps(5, 1.0)})
    async with while_it_runs((0, PAUSE)) as (engine, clock):
        trace = await engine.run(world_task(world), **agent(world))
        assert (clock(), trace.stop_condition, trace.ok) == (5, "no_progress", True)


# ---- drain


async def test_a_drain_stops_every_rollout_at_its_next_turn() -> None:
    world = World(turns=5, script={"model": sleeps(10)})
    async with while_it_runs((25, DRAIN)) as (engine, clock):
        trace = await engine.run(world_task(world), **agent(world))
        assert clock() == 30
    assert (trace.ok, trace.stop_condition, trace.num_turns) == (True, "drained", 3)
    assert trace.ending is not None
    assert (trace.ending.name, trace.ending.cause, trace.ending.counts) == ("drained", "caller", False)


async def test_a_drain_starts_no_new_rollout_and_the_traces_of_those_that_ran_come() -> None:
    world = World(turns=3, script={"model": sleeps(10)})
    tasks = [world_task(world, prompt=f"number {number}") for number in range(10)]
    async with while_it_runs((35, DRAIN)) as (engine, clock):
        async with engine.run_all(tasks, max_concurrent=2, **agent(world)) as traces:
            conditions = [trace.stop_condition async for trace in traces]
        assert (conditions, clock()) == (["agent_completed"] * 2 + ["drained"] * 2, 40)
        with pytest.raises(RuntimeError, match="drains: it starts no new rollout"):
            await engine.run(tasks[0], **agent(world))


async def test_a_drain_awaited_is_over_when_the_last_driven_rollout_is() -> None:
    world = World(turns=3, script={"model": sleeps(10)})
    tasks = [world_task(world, prompt=f"number {number}") for number in range(4)]
    async with while_it_runs() as (engine, clock), engine.run_all(tasks, max_concurrent=2, **agent(world)) as traces:
        await trio.sleep(5)
        await engine.drain()
        assert clock() == 10
        assert [trace.stop_condition async for trace in traces] == ["drained", "drained"]


async def test_a_drain_ends_a_pause_and_refuses_what_it_held() -> None:
    world = World(turns=3, script={"model": sleeps(10)})
    async with while_it_runs((5, PAUSE), (50, DRAIN)) as (engine, clock):
        trace = await engine.run(world_task(world), **agent(world))
        assert (clock(), trace.stop_condition, trace.num_turns) == (50, "drained", 1)


async def test_a_drained_interaction_goes_on_to_its_end_by_its_caller() -> None:
    world = World()
    async with while_it_runs() as (engine, _), interaction(engine, world) as chat:
        assert not (await chat.turn("one")).terminated
        await engine.drain()
        assert (await chat.turn("two")).terminated
    assert (chat.trace.ok, chat.trace.stop_condition, chat.trace.num_turns) == (True, "drained", 1)


async def test_groups_that_a_drain_leaves_incomplete_come_at_the_end() -> None:
    world = World(turns=1, script={"model": sleeps(10)})
    tasks = [world_task(world, prompt=f"number {number}") for number in range(2)]
    async with while_it_runs((15, DRAIN)) as (engine, _):
        batch = engine.run_all(tasks, rollouts_per_task=3, max_concurrent=2, group_by_task=True, **agent(world))
        async with batch as groups:
            sizes = [len(group) async for group in groups]
    assert sizes == [3, 1]


# ---- permits of segments


async def test_so_many_segments_run_at_once_and_waiting_burns_no_budget() -> None:
    world = World(script={"model": sleeps(10)})
    tasks = [world_task(world, prompt=f"number {number}") for number in range(4)]
    async with while_it_runs(max_active_segments=1) as (engine, clock):
        async with engine.run_all(tasks, timeouts=RolloutTimeouts(agent=15), **agent(world)) as traces:
            assert [trace.ok async for trace in traces] == [True] * 4
        assert clock() == 40


async def test_two_agents_that_talk_to_each_other_share_one_permit_without_a_deadlock() -> None:
    one, other = World(script={"model": sleeps(10, "ping")}), World(script={"model": sleeps(20, "pong")})
    bounds = RolloutTimeouts(agent=100)
    async with while_it_runs(max_active_segments=1) as (engine, clock):  # noqa: SIM117
        async with (
            interaction(engine, one, timeouts=bounds) as first,
            interaction(engine, other, timeouts=bounds) as second,
        ):
            said = "begin"
            for _ in range(3):
                said = (await first.turn(said)).last_reply or ""
                said = (await second.turn(said)).last_reply or ""
            assert (first.rollout.time_remaining, second.rollout.time_remaining, clock()) == (70, 40, 90)
    assert (first.trace.ok, second.trace.ok) == (True, True)


async def test_a_segment_that_drives_another_rollout_lends_it_its_permit() -> None:
    outer, inner = World(), World(script={"model": sleeps(10)})

    async with while_it_runs(max_active_segments=1) as (engine, clock), interaction(engine, inner) as sub:

        async def segment() -> None:
            session = outer.session
            assert session is not None
            await sub.turn("help me")
            await session.turn()

        outer.script["segment"] = segment
        trace = await engine.run(world_task(outer), **agent(outer))
        assert (trace.ok, clock()) == (True, 10)


async def test_a_cancelled_wait_for_a_permit_leaves_it_to_the_next() -> None:
    busy, late = World(script={"model": sleeps(50)}), World()
    async with while_it_runs(max_active_segments=1) as (engine, clock), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: engine.run(world_task(busy), **agent(busy)))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(10):
            await engine.run(world_task(late), **agent(late))
        assert (clock(), late.unreleased(), late.began.count("segment")) == (10, [], 0)
        rollout = engine.rollout(world_task(late), **agent(late))
        await rollout.open()
        nursery.start_soon(rollout.step)
        await trio.testing.wait_all_tasks_blocked()
        assert (rollout.state, rollout.activity.doing) == ("waiting", "a permit for the segment")
        await rollout.cancel()
        assert (clock(), rollout.state) == (10, "aborted")


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "two"])
def test_a_bound_of_segments_is_a_whole_number_of_at_least_one(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_active_segments must be a whole number of at least 1"):
        open_engine(max_active_segments=wrong)


async def test_a_stop_that_is_named_as_the_drain_is_refused() -> None:
    class Mine:
        @stop
        def drained(self, trace: Trace) -> bool:
            return False

    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TypeError, match="'drained' is one of the engine's own stop conditions"):
            engine.rollout(world_task(world, hooks=Mine), **agent(world))


async def test_an_agent_that_ignores_its_deadline_in_a_pause_is_judged_when_the_clock_goes_on() -> None:
    world = World(script={"segment": sleeps(29)})
    policy = RolloutPolicy(no_progress="stop")
    async with while_it_runs((10, PAUSE)) as (engine, clock):
        trace = await engine.run(world_task(world), timeouts=RolloutTimeouts(agent=15), policy=policy, **agent(world))
        assert (clock(), trace.stop_condition, trace.ok, warnings(trace)) == (29, "no_progress", True, [])


async def test_a_second_step_is_refused_while_the_first_waits_for_its_permit() -> None:
    busy, late = World(script={"model": sleeps(50)}), World()
    async with while_it_runs(max_active_segments=1) as (engine, clock), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: engine.run(world_task(busy), **agent(busy)))
        await trio.testing.wait_all_tasks_blocked()
        rollout = engine.rollout(world_task(late), has_user=True, **agent(late))
        await rollout.open()
        nursery.start_soon(rollout.step)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RolloutBusyError):
            await rollout.step("once more")
        await trio.sleep(60)
        assert (rollout.state, late.began.count("segment"), clock()) == ("waiting", 1, 60)


async def test_a_step_that_waits_for_its_permit_is_told_no_when_the_exchange_ends() -> None:
    busy = World(script={"model": sleeps(50)})
    async with while_it_runs(max_active_segments=1) as (engine, clock), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: engine.run(world_task(busy), **agent(busy)))
        await trio.testing.wait_all_tasks_blocked()
        for end in (lambda it: it.close(), lambda it: it.cancel(), lambda it: it.stop("enough")):
            answers: list[bool] = []
            world = World()
            rollout = engine.rollout(world_task(world), **agent(world))

            async def step(rollout: Rollout = rollout, answers: list[bool] = answers) -> None:
                answers.append(await rollout.step())

            await rollout.open()
            nursery.start_soon(step)
            await trio.testing.wait_all_tasks_blocked()
            if (ended := end(rollout)) is not None:
                await ended
            await trio.testing.wait_all_tasks_blocked()
            assert (answers, world.began.count("segment"), clock()) == ([False], 0, 0)


# ---- at the moment of an admission, of a start, of an end


@pytest.mark.parametrize("wait", range(12))
async def test_no_model_call_begins_after_an_awaited_pause_has_returned(wait: int) -> None:
    world = World(turns=30)
    async with open_engine(gateway=False) as engine, trio.open_nursery() as nursery:
        rollout = engine.rollout(world_task(world), **agent(world))
        await rollout.open()
        nursery.start_soon(rollout.step)
        for _ in range(wait):
            await trio.lowlevel.checkpoint()
        await engine.pause()
        began = world.began.count("model")
        await trio.testing.wait_all_tasks_blocked()
        assert world.began.count("model") == began == world.left.count("model")
        engine.resume()


@pytest.mark.parametrize("after", range(1, 6))
async def test_a_drain_by_the_consumer_harms_no_rollout_that_runs(after: int) -> None:
    world = World(turns=2, script={"model": sleeps(1)})
    tasks = [world_task(world, prompt=f"number {number}") for number in range(12)]
    seen: list[Trace] = []
    async with open_engine(gateway=False) as engine, engine.run_all(tasks, max_concurrent=3, **agent(world)) as traces:
        async for trace in traces:
            seen.append(trace)
            if len(seen) == after:
                engine.drain()
    assert {trace.stop_condition for trace in seen} <= {"agent_completed", "drained"}
    assert all(trace.ok for trace in seen)
    assert after <= len(seen) <= after + 3


async def test_a_step_that_is_cancelled_while_it_waits_for_its_permit_aborts_its_rollout() -> None:
    busy, late = World(script={"model": sleeps(50)}), World()
    async with while_it_runs(max_active_segments=1) as (engine, _), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: engine.run(world_task(busy), **agent(busy)))
        await trio.testing.wait_all_tasks_blocked()
        rollout = engine.rollout(world_task(late), **agent(late))
        await rollout.open()
        with trio.move_on_after(5):
            await rollout.step()
        assert (rollout.state, late.unreleased()) == ("aborted", [])


async def test_a_failure_is_refused_while_a_step_waits_for_its_permit() -> None:
    busy, late = World(script={"model": sleeps(50)}), World()
    async with while_it_runs(max_active_segments=1) as (engine, _), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: engine.run(world_task(busy), **agent(busy)))
        await trio.testing.wait_all_tasks_blocked()
        rollout = engine.rollout(world_task(late), **agent(late))
        await rollout.open()
        nursery.start_soon(rollout.step)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RolloutBusyError):
            rollout.fail(ValueError("mine"))
        await rollout.cancel()


async def test_resume_without_tasks_takes_no_settings() -> None:
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TypeError, match="name its tasks"):
            engine.resume(None, **agent(World()))
        with pytest.raises(RuntimeError, match="resumes no run"):
            engine.resume([], **agent(World()))


async def test_any_number_of_tasks_may_wait_for_a_pause_and_for_a_drain() -> None:
    world = World(script={"model": sleeps(10)})
    quiet: list[float] = []
    async with while_it_runs() as (engine, clock), trio.open_nursery() as nursery:

        async def wait(until: Callable[[], Any]) -> None:
            await until()
            quiet.append(clock())

        nursery.start_soon(lambda: engine.run(world_task(world), **agent(world)))
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            nursery.start_soon(wait, engine.pause)
        await trio.sleep(20)
        for _ in range(3):
            nursery.start_soon(wait, engine.drain)
    assert quiet == [10, 10, 10, 20, 20, 20]


@pytest.mark.parametrize("verb", ["cancel", "close"])
async def test_a_step_whose_permit_comes_in_the_step_in_which_its_exchange_ends_is_told_no(verb: str) -> None:
    first, second = World(script={"model": sleeps(10)}), World()
    answers: list[bool] = []
    async with open_engine(gateway=False, max_active_segments=1) as engine, trio.open_nursery() as nursery:
        held = engine.rollout(world_task(first), has_user=True, **agent(first))
        waits = engine.rollout(world_task(second), has_user=True, **agent(second))
        await held.open()
        await waits.open()

        async def step() -> None:
            answers.append(await waits.step())

        async def holder() -> None:
            await held.step()
            await getattr(waits, verb)()

        nursery.start_soon(holder)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(step)
    assert len(answers) == 1
    assert waits.is_final


async def test_a_rollout_that_needs_no_further_turn_ends_as_it_would_have_in_a_drain() -> None:
    world = World(turns=1, script={"model": sleeps(10)})
    async with while_it_runs((5, DRAIN)) as (engine, clock):
        trace = await engine.run(world_task(world), **agent(world))
        assert clock() == 10
    assert (trace.ok, trace.stop_condition, trace.num_turns) == (True, "agent_completed", 1)
    assert trace.ending is not None
    assert trace.ending.counts


def test_an_engine_that_is_opened_outside_of_trio_says_what_to_open_instead() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"rollout_fsm\.aio\.open_engine"):
            await open_engine().__aenter__()

    asyncio.run(main())

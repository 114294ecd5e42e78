"""Many rollouts at once: bounded from boot to confirmed release, their traces as they finish, none disturbed by another
(L3, L42)."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from rollout_fsm import GroupInfo, Task, TaskError, Trace, open_engine
from tests.world import (
    ScriptedRuntime,
    World,
    agent,
    error_types,
    raises,
    sleeps,
    world_task,
)


class MineError(Exception):
    """The body's own."""


def tasks_of(world: World, count: int) -> list[Task]:
    return [world_task(world, prompt=f"number {number}") for number in range(count)]


class Counting(ScriptedRuntime):
    """A runtime that counts how many are between boot and confirmed release."""

    now = most = 0

    async def start(self) -> None:
        Counting.now += 1
        Counting.most = max(Counting.most, Counting.now)
        await trio.sleep(1)

    async def stop(self) -> None:
        self._stopped = True
        await trio.sleep(1)
        Counting.now -= 1


@pytest.fixture(autouse=True)
def _nothing_counted() -> Iterator[None]:
    Counting.now = Counting.most = 0
    yield
    assert Counting.now == 0


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (8, 8), (50, 8), (None, 8)])
async def test_at_most_so_many_at_once_from_boot_to_confirmed_release(limit: int | None, most: int) -> None:
    world = World()
    settings = agent(world, runtime=lambda name: Counting(world, name))
    async with open_engine(gateway=False) as engine:  # noqa: SIM117
        async with engine.run_all(tasks_of(world, 8), max_concurrent=limit, **settings) as traces:
            assert [trace.ok async for trace in traces] == [True] * 8
    assert Counting.most == most


async def test_the_bound_holds_for_failing_rollouts_too() -> None:
    world = World(script={"task.setup": raises(ValueError)})
    settings = agent(world, runtime=lambda name: Counting(world, name))
    async with open_engine(gateway=False) as engine:  # noqa: SIM117
        async with engine.run_all(tasks_of(world, 6), max_concurrent=2, **settings) as traces:
            assert [trace.ok async for trace in traces] == [False] * 6
    assert Counting.most == 2


async def test_traces_come_as_they_finish_each_once() -> None:
    world = World()

    async def model() -> None:
        await trio.sleep({"number 0": 3, "number 1": 1, "number 2": 2}[world.seen[-1].messages[0].text])

    world.script["model"] = model
    async with open_engine(gateway=False) as engine, engine.run_all(tasks_of(world, 3), **agent(world)) as traces:
        order = [trace.nodes[0].message.text async for trace in traces]
    assert order == ["number 1", "number 2", "number 0"]


async def test_each_task_is_run_so_many_times_as_a_group() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:  # noqa: SIM117
        async with engine.run_all(tasks_of(world, 2), rollouts_per_task=3, **agent(world)) as traces:
            found = [trace async for trace in traces]
    groups: dict[str, list[int | None]] = {}
    for trace in found:
        assert trace.group is not None
        groups.setdefault(trace.group.id, []).append(trace.group.index)
    assert {key: sorted(map(int, map(str, indexes))) for key, indexes in groups.items()} == {
        key: [0, 1, 2] for key in groups
    }
    assert len(groups) == 2
    assert len({trace.id for trace in found}) == 6


async def test_equal_tasks_are_different_groups() -> None:
    world = World()
    task = world_task(world)
    async with open_engine(gateway=False) as engine:  # noqa: SIM117
        async with engine.run_all([task, task], rollouts_per_task=2, **agent(world)) as traces:
            groups = [trace.group.id async for trace in traces if trace.group]
    assert sorted(map(groups.count, set(groups))) == [2, 2]


async def test_no_tasks_make_no_traces() -> None:
    async with open_engine(gateway=False) as engine, engine.run_all([], **agent(World())) as traces:
        assert [trace async for trace in traces] == []


async def test_a_failing_rollout_is_a_trace_like_any_other_and_disturbs_no_sibling() -> None:
    world = World()

    async def model() -> None:
        if world.seen[-1].messages[0].text == "number 1":
            raise ValueError("down")
        await trio.sleep(5)

    world.script["model"] = model
    async with open_engine(gateway=False) as engine, engine.run_all(tasks_of(world, 3), **agent(world)) as traces:
        found = [(error_types(trace), trace.ok) async for trace in traces]
    assert found == [(["ProviderError"], False), ([], True), ([], True)]


async def test_leaving_early_cancels_what_is_left_and_waits_for_its_release() -> None:
    world = World(script={"harness.cleanup": sleeps(4)})

    async def model() -> None:
        if len(world.seen) > 1:
            await trio.sleep_forever()

    world.script["model"] = model
    finished: list[Trace] = []

    class Observer:
        def on_finished(self, trace: Trace) -> None:
            finished.append(trace)

    async with open_engine(gateway=False, observers=[Observer()]) as engine:
        async with engine.run_all(tasks_of(world, 4), max_concurrent=2, **agent(world)) as traces:
            async for trace in traces:
                assert trace.ok
                break
        assert world.began.count("runtime.start") == world.ended.count("runtime.stop")
        assert [trace.stop_condition for trace in finished[1:]] == ["cancelled"] * len(finished[1:])
        assert len(finished) < 4  # what had not begun was not begun
        with pytest.raises(Exception):  # noqa: B017, PT011  (a closed channel: there is nothing to come)
            await anext(traces)


@pytest.mark.parametrize("error", [MineError("oops"), KeyboardInterrupt(), ExceptionGroup("own", [MineError()])])
async def test_an_exception_in_the_body_comes_out_as_it_is(error: BaseException) -> None:
    world = World(script={"model": trio.sleep_forever})
    async with open_engine(gateway=False) as engine:
        with pytest.raises(type(error)) as raised:  # noqa: PT012
            async with engine.run_all(tasks_of(world, 3), **agent(world)):
                await trio.testing.wait_all_tasks_blocked()
                raise error
        assert raised.value is error
        assert world.began.count("runtime.start") == world.ended.count("runtime.stop") == 3


async def test_a_consumer_that_is_cancelled_leaves_nothing_running() -> None:
    world = World(script={"model": trio.sleep_forever, "harness.cleanup": sleeps(2)})
    async with open_engine(gateway=False) as engine:
        with trio.move_on_after(5) as scope:
            async with engine.run_all(tasks_of(world, 3), **agent(world)) as traces:
                async for _ in traces:
                    raise AssertionError("none finishes")
        assert scope.cancelled_caught
        assert world.began.count("runtime.start") == world.ended.count("runtime.stop") == 3


async def test_leaving_early_hands_no_group_on_that_is_not_whole() -> None:
    took = iter([1.0, 1_000.0])

    async def model() -> None:
        await trio.sleep(next(took))

    world = World(script={"model": model})
    sizes: list[int] = []
    async with open_engine(gateway=False) as engine, trio.open_nursery() as elsewhere:
        batch = engine.run_all(tasks_of(world, 1), rollouts_per_task=2, group_by_task=True, **agent(world))
        async with batch as groups:

            async def consume() -> None:
                sizes.extend([len(group) async for group in groups])

            elsewhere.start_soon(consume)
            await trio.sleep(10)
    assert next(took, None) is None
    assert sizes == []


async def test_a_consumer_that_takes_its_time_holds_no_rollout_up() -> None:
    world = World(script={"model": sleeps(1)})
    async with open_engine(gateway=False) as engine:
        started = trio.current_time()
        async with engine.run_all(tasks_of(world, 5), max_concurrent=1, **agent(world)) as traces:
            await trio.sleep(6)
            assert world.began.count("runtime.stop") == 5
            assert trio.current_time() - started == 6
            assert len([trace async for trace in traces]) == 5


async def test_a_borrowed_runtime_that_was_stopped_aborts_its_rollouts_and_no_others() -> None:
    world = World()
    runtime = ScriptedRuntime(world)

    async def finalize() -> None:
        if world.began.count("finalize") == 2:
            runtime._stopped = True

    world.script["finalize"] = finalize
    async with open_engine(gateway=False) as engine:
        settings = agent(world, runtime=runtime)
        async with engine.run_all(tasks_of(world, 4), max_concurrent=1, **settings) as traces:
            found = [(trace.ok, trace.transitions[-1].target, trace.errors) async for trace in traces]
    assert found == [(True, "completed", []), *[(False, "aborted", [])] * 3]


@pytest.mark.parametrize("name", ["rollouts_per_task", "max_concurrent"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
async def test_wrong_numbers_are_refused_before_anything_starts(name: str, value: Any) -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(ValueError, match=name):
            engine.run_all(tasks_of(world, 1), **{name: value}, **agent(world))
    assert world.began == []


async def test_what_is_no_task_among_the_tasks_is_refused_before_anything_starts() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TypeError, match="Task"):
            engine.run_all([world_task(world), "2 + 2?"], **agent(world))  # type: ignore[list-item]
    assert world.began == []


async def test_it_is_a_context_manager() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        batch = engine.run_all(tasks_of(world, 1), **agent(world))
        with pytest.raises(RuntimeError, match="async with"):
            await anext(batch)
    assert world.began == []


async def test_two_batches_run_side_by_side() -> None:
    world = World(script={"model": sleeps(3)})
    async with open_engine(gateway=False) as engine:
        started = trio.current_time()
        async with engine.run_all(tasks_of(world, 2), **agent(world)) as one:
            async with engine.run_all(tasks_of(world, 2), **agent(world)) as two:
                assert len([trace async for trace in two]) == 2
            assert len([trace async for trace in one]) == 2
        assert trio.current_time() - started == 3


async def test_leaving_the_engine_ends_a_batch_whose_block_was_never_left() -> None:
    world = World(script={"model": trio.sleep_forever})
    async with open_engine(gateway=False) as engine:
        batch = engine.run_all(tasks_of(world, 5), max_concurrent=2, **agent(world))
        await batch.__aenter__()
        await trio.testing.wait_all_tasks_blocked()
    assert world.began.count("runtime.start") == world.ended.count("runtime.stop") == 2


async def test_many_rollouts_take_neither_an_id_nor_a_group() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        for name, value in (("id", "mine"), ("group", GroupInfo(id="mine", index=0))):
            with pytest.raises(TypeError, match=f"leave {name}= to run"):
                engine.run_all(tasks_of(world, 2), **agent(world, **{name: value}))


async def test_a_task_that_cannot_say_which_one_it_is_is_refused_before_anything_starts() -> None:
    class Lost(Task):
        @property
        def key(self) -> str:
            raise KeyError("which?")

    world = World()
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TaskError, match=r"reading key, hash and row of task 1 \(Lost\) failed: KeyError"):
            engine.run_all([*tasks_of(world, 1), Lost(prompt="x")], **agent(world))

"""One owed rollout over several attempts: retries of `run` and `run_all`."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rollout_fsm import (
    ProviderError,
    RetryPolicy,
    SandboxError,
    Trace,
    check_trace,
    open_engine,
    read_traces,
    stop,
)
from rollout_fsm.flow import Counted
from rollout_fsm.trace import TransitionRecord
from tests.world import (
    ScriptedRuntime,
    World,
    agent,
    error_types,
    raises,
    sleeps,
    world_task,
)


def failing(times: int, kind: type[BaseException] = ProviderError, after: float = 0.0) -> Callable[[], Any]:
    """Fails so many times, and goes well from then on."""
    left = [times]

    async def act() -> None:
        await trio.sleep(after)
        left[0] -= 1
        if left[0] >= 0:
            raise kind(f"failure {times - left[0]}")

    return act


def flat(retries: int, seconds: float = 10, **given: Any) -> RetryPolicy:
    return RetryPolicy(max_retries=retries, backoff=lambda retry: seconds, **given)


async def test_a_failed_attempt_is_followed_by_a_fresh_one_and_the_last_tells_of_it() -> None:
    world = World(script={"model": failing(2)})
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(world_task(world), retry=flat(3), **agent(world))
        assert trio.current_time() == 20
    assert (trace.ok, trace.errors, trace.reward) == (True, [], 1.0)
    told = trace.info["attempts"]
    assert isinstance(told, list)
    assert [attempt["errors"][0]["message"] for attempt in told] == ["failure 1", "failure 2"]  # type: ignore[index, call-overload]
    assert [attempt["ending"] for attempt in told] == ["provider_error"] * 2  # type: ignore[index, call-overload]
    assert len({trace.id, *(attempt["id"] for attempt in told)}) == 3  # type: ignore[index, call-overload]
    assert world.began.count("runtime.start") == world.began.count("runtime.stop") == 3
    assert check_trace(trace) == []


async def test_the_last_attempts_failure_is_the_rollouts_when_none_is_left() -> None:
    world = World(script={"model": failing(9)})
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(world_task(world), retry=flat(2), **agent(world))
    assert [error.message for error in trace.errors] == ["failure 3"]
    assert (trace.ok, trace.reward, len(trace.info["attempts"])) == (False, None, 2)  # type: ignore[arg-type]


POLICIES = [None, RetryPolicy(), flat(3, include=["SandboxError"]), flat(3, exclude=["ProviderError"])]


@pytest.mark.parametrize("policy", POLICIES)
async def test_what_the_policy_does_not_name_is_not_tried_again(policy: RetryPolicy | None) -> None:
    world = World(script={"model": failing(1)})
    settings = agent(world) if policy is None else agent(world, retry=policy)
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(world_task(world), **settings)
    assert (error_types(trace), trace.info, world.began.count("model")) == (["ProviderError"], {}, 1)


async def test_the_primary_cause_decides_not_what_came_after_it() -> None:
    world = World(script={"model": raises(ValueError, "the model's"), "runtime.kill": failing(9, SandboxError)})
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(world_task(world), retry=flat(3, include=["SandboxError"]), **agent(world))
    assert (error_types(trace)[0], world.began.count("runtime.start")) == ("ProviderError", 1)


async def test_nothing_is_tried_again_in_a_borrowed_runtime() -> None:
    world = World(script={"model": failing(1)})
    box = ScriptedRuntime(world)
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(world_task(world), **agent(world, runtime=box, retry=flat(3)))
    assert (trace.ok, world.began.count("model")) == (False, 1)


async def test_a_cancelled_attempt_is_the_last() -> None:
    world = World(script={"model": sleeps(50)})
    async with open_engine(gateway=False) as engine:
        with trio.move_on_after(20) as scope:
            await engine.run(world_task(world), retry=flat(3), **agent(world))
        assert (scope.cancelled_caught, trio.current_time()) == (True, 20)
    assert world.began.count("runtime.start") == 1


class Ends:
    """Notes what is told of ends."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_retry(self, trace: Trace, seconds: float) -> None:
        self.told.append("retry")

    def on_finished(self, trace: Trace) -> None:
        self.told.append("finished")


async def test_a_back_off_that_is_cancelled_makes_its_attempt_the_last() -> None:
    world, ends = World(script={"model": failing(1)}), Ends()
    async with open_engine(gateway=False, observers=[ends]) as engine:
        with trio.move_on_after(5):
            await engine.run(world_task(world), retry=flat(3), **agent(world))
        assert trio.current_time() == 5
        assert ends.told == ["retry", "finished"]
    assert world.began.count("runtime.start") == 1


async def test_an_engine_that_is_left_ends_every_back_off_and_tells_of_each_rollout_once() -> None:
    world, ends = World(script={"model": failing(99, after=1)}), Ends()
    tasks = [world_task(world, prompt=f"number {number}") for number in range(6)]
    seen: list[Trace] = []
    async with trio.open_nursery() as nursery, open_engine(gateway=False, observers=[ends]) as engine:

        async def consume() -> None:
            async with engine.run_all(tasks, max_concurrent=2, retry=flat(9, 3), **agent(world)) as traces:
                seen.extend([trace async for trace in traces])

        nursery.start_soon(consume)
        await trio.sleep(5.5)
    assert ends.told.count("finished") == len(seen) == len({trace.id for trace in seen})
    assert 0 < len(seen) <= 6


@pytest.mark.parametrize("info", [None, "mine", 7])
async def test_an_attempt_that_no_other_follows_ends_whatever_a_hook_has_made_of_its_info(info: Any) -> None:
    class Spoils:
        @stop
        async def spoils(self, trace: Trace) -> bool:
            trace.info = info
            return False

    class Drains(Ends):
        def on_retry(self, trace: Trace, seconds: float) -> None:
            super().on_retry(trace, seconds)
            engine.drain()

    world, ends = World(script={"model": failing(9)}), Drains()
    async with open_engine(gateway=False, observers=[ends]) as engine:
        trace = await engine.run(world_task(world, hooks=Spoils), retry=flat(3), **agent(world))
    assert ends.told == ["retry", "finished"]
    assert trace.info == {"to_be_retried": True}


@pytest.mark.real_time
async def test_a_drain_ends_the_back_off_with_the_trace_there_is(tmp_path: Any) -> None:
    class Drains:
        def on_retry(self, trace: Trace, seconds: float) -> None:
            if error_types(trace) and trace.errors[0].message == "failure 2":
                engine.drain()

    world = World(script={"model": failing(9)})
    policy = RetryPolicy(max_retries=5, backoff=lambda retry: 0 if retry == 1 else 1_000)
    async with open_engine(gateway=False, output_dir=tmp_path / "run", observers=[Drains()]) as engine:
        trace = await engine.run(world_task(world), retry=policy, **agent(world))
    written = [found.id for found in read_traces(tmp_path / "run" / "traces.jsonl", on_fault=pytest.fail)]
    assert written == [trace.id]
    assert [error.message for error in trace.errors] == ["failure 2"]


@pytest.mark.real_time
async def test_only_the_last_attempt_is_written(tmp_path: Any) -> None:
    world = World(script={"model": failing(2)})
    async with open_engine(gateway=False, output_dir=tmp_path / "run") as engine:
        trace = await engine.run(world_task(world), retry=flat(3, 0), id="mine", **agent(world))
    (written,) = read_traces(tmp_path / "run" / "traces.jsonl", on_fault=pytest.fail)
    assert written == trace
    assert (trace.id, [told["id"] for told in trace.info["attempts"]]) == ("mine-3", ["mine", "mine-2"])  # type: ignore[index, call-overload, union-attr]


async def test_observers_are_told_of_a_retry_instead_of_an_end() -> None:
    class Watch:
        def __init__(self) -> None:
            self.seen: list[object] = []

        def on_trace(self, trace: Trace) -> None:
            self.seen.append("minted")

        def on_retry(self, trace: Trace, seconds: float) -> None:
            self.seen.append((error_types(trace), seconds, trace.ending and trace.ending.name))

        def on_finished(self, trace: Trace) -> None:
            self.seen.append(trace.ok)

    world, watch = World(script={"model": failing(1)}), Watch()
    async with open_engine(gateway=False, observers=[watch]) as engine:
        await engine.run(world_task(world), retry=flat(3), **agent(world))
    assert watch.seen == ["minted", (["ProviderError"], 10, "provider_error"), "minted", True]


async def test_a_back_off_holds_no_permit() -> None:
    world = World(script={"model": failing(1, after=1)})
    tasks = [world_task(world, prompt=f"number {number}") for number in range(4)]
    async with open_engine(gateway=False) as engine:  # noqa: SIM117
        async with engine.run_all(tasks, max_concurrent=1, retry=flat(1, 100), **agent(world)) as traces:
            order = [(trio.current_time(), trace.task.data["prompt"]) async for trace in traces]
    assert order == [(2, "number 1"), (3, "number 2"), (4, "number 3"), (102, "number 0")]


async def test_no_more_boxes_than_permits_whatever_is_tried_again() -> None:
    boxes, most = Counted(), [0]

    class Counting(ScriptedRuntime):
        async def start(self) -> None:
            boxes.number += 1
            most[0] = max(most[0], boxes.number)
            await trio.sleep(1)

        async def stop(self) -> None:
            self._stopped = True
            await trio.sleep(1)
            boxes.number -= 1

    world = World(script={"model": failing(7, after=1)})
    tasks = [world_task(world, prompt=f"number {number}") for number in range(12)]
    settings = agent(world, runtime=lambda name: Counting(world, name), retry=flat(9, 3))
    async with open_engine(gateway=False) as engine, engine.run_all(tasks, max_concurrent=3, **settings) as traces:
        assert [trace.ok async for trace in traces] == [True] * 12
    assert (most[0], boxes.number) == (3, 0)


async def test_leaving_the_batch_ends_what_waits_for_its_retry() -> None:
    world = World(script={"model": failing(9)})
    async with open_engine(gateway=False) as engine:
        async with engine.run_all([world_task(world)], retry=flat(3, 1_000), **agent(world)):
            await trio.sleep(1)
        assert trio.current_time() == 1


async def test_groups_come_whole_and_in_order_with_their_retries() -> None:
    world = World(script={"model": failing(2, after=1)})
    tasks = [world_task(world, prompt=f"number {number}") for number in range(2)]
    batch: Any = {"rollouts_per_task": 3, "group_by_task": True, "retry": flat(1, 50)}
    async with open_engine(gateway=False) as engine, engine.run_all(tasks, **batch, **agent(world)) as groups:
        found = [
            [(trace.task.data["prompt"], trace.group.index, trace.ok) for trace in group if trace.group]
            async for group in groups
        ]
    assert sorted(found) == [[(f"number {task}", index, True) for index in range(3)] for task in range(2)]


async def test_a_back_off_function_that_fails_ends_the_attempts() -> None:
    def broken(retry: int) -> float:
        raise ValueError("no idea")

    world = World(script={"model": failing(1)})
    policy = RetryPolicy(max_retries=3, backoff=broken)
    async with open_engine(gateway=False) as engine:
        trace = await engine.run(world_task(world), retry=policy, **agent(world))
    assert (error_types(trace), trace.info) == (["ProviderError"], {})


async def test_who_drives_a_rollout_tries_it_again_alone() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        for verb in (engine.rollout, engine.interaction):
            with pytest.raises(TypeError, match=r"driven by its caller.*leave retry= to run\(\) and run_all\(\)"):
                verb(world_task(world), retry=flat(1), **agent(world))
        with pytest.raises(TypeError, match="retry must be a RetryPolicy, not 3"):
            await engine.run(world_task(world), retry=3, **agent(world))  # type: ignore[arg-type]


async def test_what_a_task_put_in_the_place_of_info_does_not_lose_the_attempts() -> None:
    world = World()

    class Spoils:
        def on_transition(self, trace: Trace, transition: TransitionRecord) -> None:
            if transition.target == "scoring":
                trace.info = None  # type: ignore[assignment]

    world.script["model"] = failing(1)
    async with open_engine(gateway=False, observers=[Spoils()]) as engine:
        trace = await engine.run(world_task(world), retry=flat(1), **agent(world))
    assert list(trace.info) == ["attempts"]


async def test_an_attempt_that_json_cannot_carry_is_told_of_without_that_and_counts_all_the_same() -> None:
    async def overloaded() -> None:
        raise ProviderError("overloaded", status_code=float("nan"))  # type: ignore[arg-type]

    world = World(script={"model": overloaded})
    async with (
        open_engine(gateway=False) as engine,
        engine.run_all([world_task(world)], retry=flat(2, 0), **agent(world)) as traces,
    ):
        (trace,) = [trace async for trace in traces]
    assert (world.began.count("model"), len(trace.info["attempts"])) == (3, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [10**400, float("inf"), -1, True])
def test_a_pause_that_no_clock_can_tell_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="finite number of seconds"):
        RetryPolicy(backoff=wrong)


async def test_what_is_no_policy_is_refused_by_every_verb() -> None:
    world = World()
    async with open_engine(gateway=False) as engine:
        for verb in (engine.rollout, engine.interaction):
            with pytest.raises(TypeError, match="retry must be a RetryPolicy"):
                verb(world_task(world), retry=3, **agent(world))

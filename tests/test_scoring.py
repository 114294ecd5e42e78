"""Signals: what is expected, what is measured, what counts as a number, and what stands when something fails (L54,
L60-L64)."""

import fractions
import math
import numbers
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
import trio

from rollout_fsm import (
    Judge,
    Rollout,
    RolloutTimeouts,
    Runtime,
    Task,
    Trace,
    Usage,
    metric,
    reward,
)
from rollout_fsm.trace import Reward
from tests.world import (
    Act,
    NoHooks,
    ScriptedHarness,
    World,
    error_types,
    play,
    raises,
    sleeps,
    swallows,
    world_task,
)


class ByHand(numbers.Real):
    """A real number of a library of its own, as numpy's are."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


def by_hand(value: float, kind: type = ByHand) -> Any:
    kind.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return kind(value)


class Unfloatable(ByHand):
    """A real number that will not be one."""

    def __float__(self) -> float:
        raise ValueError("no")


def returning(value: object, kind: str = "reward", **options: Any) -> type:
    def given(self: object) -> object:
        return value

    decorate: Any = {"reward": reward, "metric": metric}[kind]
    return type("Hooks", (NoHooks,), {"given": decorate(**options)(given) if options else decorate(given)})


async def scored(value: object, kind: str = "reward", **options: Any) -> Trace:
    world = World()
    return await play(world, task=world_task(world, hooks=returning(value, kind, **options)))


NUMBERS = [
    (0, 0.0), (1, 1.0), (-2.5, -2.5), (True, 1.0), (False, 0.0), (fractions.Fraction(1, 4), 0.25), (2**60, 2.0**60),
    (10**30, 10**30), (by_hand(0.5), 0.5), (1e308, 1e308), (5e-324, 5e-324),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["reward", "metric"])
@pytest.mark.parametrize(("value", "number"), NUMBERS)
async def test_a_signal_returns_a_number(value: object, number: float, kind: str) -> None:
    trace = await scored(value, kind)
    assert trace.ok
    found = trace.metrics["given"] if kind == "metric" else trace.rewards["given"]
    score = found.score if isinstance(found, Reward) else found
    assert score == number
    assert type(score) in (int, float)


WRONG = [
    math.nan, math.inf, -math.inf, 10**400, "1", "", b"1", None, [1.0], (1.0,), 1j, object(), by_hand(math.nan),
    {"a": math.nan}, {"a": "1"}, {"a": None}, {1: 2.0}, {"a": 1.0, "b": {"c": 1.0}}, lambda: 1.0,
]  # fmt: skip


@pytest.mark.parametrize("kind", ["reward", "metric"])
@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
async def test_anything_else_is_a_task_error_that_names_the_signal(value: object, kind: str) -> None:
    trace = await scored(value, kind)
    assert error_types(trace) == ["TaskError"]
    assert f"{kind} 'given'" in trace.errors[0].message
    place: Mapping[str, object] = trace.metrics if kind == "metric" else trace.rewards
    assert set(place) == {"given", "steps" if kind == "metric" else "good"}
    assert place["given"] is None
    assert trace.rewards["good"] == Reward(score=1.0)  # the others stand
    assert not trace.ok


class Unlistable(dict[str, float]):
    """A mapping that will not say what is in it."""

    def items(self) -> Any:
        raise ValueError("no")


class Unprintable:
    """Neither a number nor something to be shown."""

    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("kind", ["reward", "metric"])
@pytest.mark.parametrize(
    "value", [by_hand(1.0, Unfloatable), Unlistable(), {"a": by_hand(1.0, Unfloatable)}, Unprintable()], ids=type
)
async def test_a_value_whose_own_code_raises_fails_its_signal_alone(value: object, kind: str) -> None:
    world = World(script={"score.good": sleeps(1), "score.steps": sleeps(1)})
    trace = await play(world, task=world_task(world, hooks=returning(value, kind)))
    assert error_types(trace) == ["TaskError"]
    assert f"{kind} 'given'" in trace.errors[0].message
    assert (trace.metrics["steps"], trace.rewards["good"]) == (1.0, Reward(score=1.0))


async def test_a_weighted_score_beyond_every_float_is_a_task_error() -> None:
    trace = await scored(10**300, weight=10**10)
    assert error_types(trace) == ["TaskError"]


@pytest.mark.parametrize("mapping", [dict, MappingProxyType])
async def test_a_mapping_of_names_takes_the_place_of_the_signals_own(mapping: Any) -> None:
    trace = await scored(mapping({"format": 0.5, "style": 1}), weight=2.0)
    assert trace.rewards == {
        "format": Reward(score=0.5, weight=2.0), "style": Reward(score=1.0, weight=2.0), "good": Reward(score=1.0),
    }  # fmt: skip
    assert trace.reward == 2 * 0.5 + 2 * 1 + 1


async def test_a_mapping_may_give_the_signals_own_name_too_and_an_empty_one_gives_nothing() -> None:
    assert set((await scored({"given": 1.0, "b": 2.0})).rewards) == {"given", "b", "good"}
    trace = await scored({})
    assert (set(trace.rewards), trace.ok) == ({"good"}, True)


class Clashes(NoHooks):
    """Two rewards of which the second gives the name of the first, and one that gives that of a later one."""

    @reward(priority=3)
    async def first(self) -> dict[str, float]:
        return {"shared": 1.0}

    @reward(priority=2)
    async def second(self) -> dict[str, float]:
        await trio.sleep(1)
        return {"fine": 1.0, "shared": 2.0}


async def test_a_name_that_another_signal_gave_is_a_task_error_and_none_of_its_names_is_recorded() -> None:
    world = World()
    trace = await play(world, task=world_task(world, hooks=Clashes))
    assert error_types(trace) == ["TaskError"]
    assert "reward 'second'" in trace.errors[0].message
    assert "'shared'" in trace.errors[0].message
    assert trace.rewards == {"shared": Reward(score=1.0), "second": None, "good": Reward(score=1.0)}


async def test_a_name_that_belongs_to_a_signal_that_has_not_returned_yet_clashes_when_that_one_returns() -> None:
    class Early(NoHooks):
        @reward(priority=1)
        def early(self) -> dict[str, float]:
            return {"late": 5.0}

        @reward
        async def late(self) -> float:
            await trio.sleep(1)
            return 1.0

    world = World()
    trace = await play(world, task=world_task(world, hooks=Early))
    assert error_types(trace) == ["TaskError"]
    assert trace.rewards == {"late": Reward(score=5.0), "good": Reward(score=1.0)}


async def test_a_metric_of_the_harness_and_one_of_the_task_of_the_same_name_clash() -> None:
    class Measured(ScriptedHarness):
        @metric
        def steps(self) -> float:
            return 7.0

    world = World()
    trace = await play(world, harness=Measured(world))
    assert error_types(trace) == ["TaskError"]
    assert "metric 'steps'" in trace.errors[0].message
    assert trace.metrics["steps"] in (1.0, 7.0)


# ---- what is expected


class Verdict(Judge):
    """A judge that says what it is told to."""

    def __init__(self, name: str, said: Any = 0.5, weight: float = 1.0) -> None:
        self.name, self.said, self.weight = name, said, weight

    async def score(self, task: Task, trace: Trace) -> Any:
        await trio.lowlevel.checkpoint()
        trace.extra_usage.append(Usage(prompt_tokens=1000, completion_tokens=1000))
        return await self.said() if callable(self.said) else self.said


async def test_every_expected_name_is_there_before_any_signal_runs() -> None:
    seen: list[tuple[dict[str, object], dict[str, object]]] = []

    class Hooks(NoHooks):
        @metric(priority=9)
        def a_first(self, trace: Trace) -> float:
            seen.append((dict(trace.rewards), dict(trace.metrics)))
            return 1.0

    class Measured(ScriptedHarness):
        @metric
        def its_own(self) -> float:
            return 7.0

    world = World()
    task = world_task(world, hooks=Hooks)
    await play(world, task=task, judges=[Verdict("judge")], harness=Measured(world))
    assert seen == [({"good": None, "judge": None}, {"a_first": None, "steps": None, "its_own": None})]


@pytest.mark.parametrize("event", ["task.setup", "model", "finalize"])
async def test_a_run_that_never_came_to_scoring_expects_nothing(event: str) -> None:
    trace = await play(World(script={event: raises(ValueError)}))
    assert (trace.rewards, trace.metrics, trace.reward) == ({}, {}, None)


# ---- order


async def test_metrics_come_first_then_rewards_then_judges_and_one_kind_runs_side_by_side() -> None:
    notes: list[str] = []

    def noting(name: str, kind: Any) -> Any:
        async def signal(self: object) -> float:
            notes.append(f"{name} begins")
            await trio.sleep(1)
            notes.append(f"{name} ends")
            return 1.0

        signal.__name__ = name
        return kind(signal)

    async def judged() -> float:
        notes.append("judge begins")
        return 1.0

    hooks = type("Hooks", (NoHooks,), {
        "m1": noting("m1", metric), "m2": noting("m2", metric), "r1": noting("r1", reward), "r2": noting("r2", reward),
    })  # fmt: skip

    class Measured(ScriptedHarness):
        h1 = noting("h1", metric)

    world = World(script={"score.steps": sleeps(1), "score.good": sleeps(1)})
    task = world_task(world, hooks=hooks)
    started = trio.current_time()
    trace = await play(world, task=task, judges=[Verdict("judge", judged)], harness=Measured(world))
    assert trace.ok
    assert trio.current_time() - started == 2
    assert {*notes[:3]} == {"m1 begins", "m2 begins", "h1 begins"}
    assert {*notes[3:6]} == {"m1 ends", "m2 ends", "h1 ends"}
    assert {*notes[6:8]} == {"r1 begins", "r2 begins"}
    assert {*notes[8:10]} == {"r1 ends", "r2 ends"}
    assert notes[10:] == ["judge begins"]


async def test_a_reward_may_read_the_metrics() -> None:
    class Hooks(NoHooks):
        @reward
        def from_metric(self, trace: Trace) -> float:
            assert trace.metrics["steps"] is not None
            return trace.metrics["steps"] * 3

    world = World()
    assert (await play(world, task=world_task(world, hooks=Hooks))).rewards["from_metric"] == Reward(score=3.0)


# ---- what stands


async def test_each_failure_is_an_error_and_a_group_counts_as_its_leaves() -> None:
    world = World(
        script={
            "score.steps": raises(ValueError, "one"),
            "score.good": raises(ExceptionGroup, "g", [KeyError("two"), ValueError("three")]),
        }
    )
    trace = await play(world, judges=[Verdict("judge", raises(OSError, "four")), Verdict("fine")])
    assert [error.message.rpartition(": ")[2] for error in trace.errors] == ["one", "'two'", "three", "four"]
    assert set(error_types(trace)) == {"TaskError"}
    assert trace.rewards == {"good": None, "judge": None, "fine": Reward(score=0.5)}


async def test_a_sibling_goes_on_when_a_signal_fails() -> None:
    class Hooks(NoHooks):
        @reward
        async def slow(self) -> float:
            await trio.sleep(5)
            return 3.0

    world = World(script={"score.good": raises(ValueError, "oh")})
    trace = await play(world, task=world_task(world, hooks=Hooks))
    assert trace.rewards == {"good": None, "slow": Reward(score=3.0)}
    assert trace.transitions[-1].target == "failed"


BOUND = RolloutTimeouts(scoring=10)


@pytest.mark.parametrize("late", [trio.sleep_forever, swallows, sleeps(10)])
async def test_what_returned_in_time_is_recorded_when_the_deadline_comes(late: Act) -> None:
    class Hooks(NoHooks):
        @reward
        async def slow(self) -> float:
            await late()
            return 3.0

        @reward
        async def fails(self) -> float:
            await trio.sleep(2)
            raise ValueError("in time")

    world = World(script={"score.good": sleeps(9)})
    trace = await play(world, task=world_task(world, hooks=Hooks), timeouts=BOUND)
    assert trace.rewards == {"slow": None, "fails": None, "good": Reward(score=1.0)}
    assert trace.metrics == {"steps": 1.0}
    assert error_types(trace) == ["TaskError", "TaskError"]
    assert trace.errors[0].message == "reward 'fails' failed: ValueError: in time"
    assert "timed out" in trace.errors[1].message
    assert "reward 'slow'" in trace.errors[1].message
    assert (world.state, trace.reward) == ("failed", 1.0)


async def test_failures_and_values_stand_when_the_scoring_is_cancelled() -> None:
    class Hooks(NoHooks):
        @reward
        async def slow(self) -> float:
            await trio.sleep_forever()
            return 3.0

        @reward
        async def fails(self) -> float:
            raise ValueError("in time")

    world = World()

    async def drive(rollout: Rollout) -> None:
        await rollout.open()
        await rollout.step()
        with trio.move_on_after(3) as scope:
            await rollout.close()
        assert scope.cancelled_caught

    trace = await play(world, task=world_task(world, hooks=Hooks), drive=drive)
    assert (world.state, trace.ok) == ("aborted", False)
    assert [error.message for error in trace.errors] == ["reward 'fails' failed: ValueError: in time"]
    assert trace.rewards == {"slow": None, "fails": None, "good": Reward(score=1.0)}


async def test_no_signal_sees_a_stopped_runtime_or_outlives_the_scoring() -> None:
    seen: list[bool] = []

    class Hooks(NoHooks):
        @reward
        async def deaf(self, runtime: Runtime) -> float:
            with trio.CancelScope(shield=True):
                await trio.sleep(20)
            seen.append(runtime.stopped)
            return 1.0

    world = World()
    trace = await play(world, task=world_task(world, hooks=Hooks), timeouts=BOUND)
    assert seen == [False]
    assert trace.rewards["deaf"] is None


# ---- judges and weights


async def test_a_judges_verdict_is_a_reward_with_its_weight_and_its_tokens_are_extra() -> None:
    world = World()
    judges = [Verdict("half", 0.5, weight=4.0), Verdict("several", {"a": 1.0, "b": 0.0}, weight=0.5)]
    trace = await play(world, judges=judges)
    assert trace.rewards == {
        "good": Reward(score=1.0),
        "half": Reward(score=0.5, weight=4.0),
        "a": Reward(score=1.0, weight=0.5),
        "b": Reward(score=0.0, weight=0.5),
    }
    assert trace.reward == 1 + 2 + 0.5
    assert trace.extra_usage == [Usage(prompt_tokens=1000, completion_tokens=1000)] * 2
    assert (trace.num_input_tokens, trace.num_output_tokens) == (10, 5)


async def test_the_tasks_own_judges_come_before_those_of_the_run() -> None:
    class Hooks(NoHooks):
        def judges(self) -> list[Judge]:
            return [Verdict("own")]

    world = World()
    trace = await play(world, task=world_task(world, hooks=Hooks), judges=[Verdict("runs")])
    assert list(trace.rewards) == ["good", "own", "runs"]


async def test_two_judges_of_one_name_clash() -> None:
    trace = await play(World(), judges=[Verdict("judge", 0.25), Verdict("judge", 0.5)])
    assert error_types(trace) == ["TaskError"]
    assert "judge 'judge'" in trace.errors[0].message


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 1.0), (-1.0, 0.5), (2, 2.0)])
async def test_the_reward_is_the_sum_of_score_times_weight(weight: float, expected: float) -> None:
    assert (await scored(0.5, weight=weight)).reward == expected


async def test_a_task_without_rewards_has_no_reward() -> None:
    world = World()
    trace = await play(world, task=Task(prompt="hello"))
    assert (trace.ok, trace.reward, trace.rewards, trace.metrics) == (True, None, {}, {})

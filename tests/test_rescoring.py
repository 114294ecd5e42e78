"""Scoring finished traces again, offline (L65, with L60-L64 as a rollout has them)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from attrs import evolve, frozen

from rollout_fsm import (
    Judge,
    RolloutTimeouts,
    Runtime,
    Task,
    Trace,
    Usage,
    check_trace,
    metric,
    open_engine,
    reward,
    stop,
    trace_from_json,
    trace_to_json,
)
from rollout_fsm.errors import ErrorRecord
from rollout_fsm.rescoring import Rescored, Skipped
from rollout_fsm.rows import task_row
from rollout_fsm.trace import Reward, TaskInfo
from tests.reports.made import ABORTED, COMPLETED, ENDED, FAILED, OPENED, made
from tests.world import NoHooks, ScriptedHarness, World, play, raises, sleeps, world_task

SCORING_FAILED = (
    *OPENED,
    "step:waiting>stepping",
    "segment_ended:stepping>waiting",
    *ENDED[:3],
    "errored:scoring>discarding",
    "released:discarding>failed",
)
SCORING_ABORTED = (*SCORING_FAILED[:-2], "cancel:scoring>aborting", "released:aborting>aborted")


@frozen(kw_only=True)
class Sum(Task):
    """What is scored again, as it is today."""

    answer: int = 4

    @reward(weight=2.0)
    def correct(self, trace: Trace) -> float:
        return self.answer

    @metric
    async def turns(self, trace: Trace) -> float:
        return trace.num_turns


def task_class(*signals: Callable[..., Any], base: type[Task] = Task, **attributes: Any) -> Any:
    """A class of tasks with these signals."""
    return frozen(kw_only=True)(type("Made", (base,), {**{made.__name__: made for made in signals}, **attributes}))


def scored(**options: Any) -> Trace:
    """A finished trace of a `Sum`, sealed as one from a file is."""
    trace = made(**options)
    object.__setattr__(trace, "task", TaskInfo(type="Sum", data={"answer": 3, "idx": 3}, key="k"))
    trace.seal()
    return trace


async def rescored(trace: Trace, task: Any, **settings: Any) -> Rescored:
    async with open_engine(gateway=False) as engine:
        return await engine.rescore(trace, task, **settings)


class Verdict(Judge):
    """A judge that gives what it is told."""

    def __init__(self, name: str = "judge", value: Any = 0.5, weight: float = 1.0) -> None:
        self.name, self.value, self.weight = name, value, weight

    async def score(self, task: Task, trace: Trace) -> Any:
        trace.extra_usage.append(Usage(prompt_tokens=1, completion_tokens=1))
        return await self.value() if callable(self.value) else self.value


# ---- what is measured


async def test_the_task_is_rebuilt_from_its_row_and_every_signal_is_measured_now() -> None:
    trace = scored(rewards={"correct": Reward(score=0.0)}, metrics={"turns": 17})
    result = await rescored(trace, Sum)
    assert result.verdict == "scored"
    assert trace.rewards == result.rewards == {"correct": Reward(score=3, weight=2.0)}
    assert trace.metrics == result.metrics == {"turns": 0}
    assert (result.skipped, result.failures, result.dropped, result.why) == ((), (), (), "")
    assert trace.reward == 6.0


async def test_it_gives_what_the_rollout_gave_where_nothing_has_changed() -> None:
    world = World()
    task = world_task(world)
    trace = await play(world, task=task)
    assert trace.reward == 1.0
    before = trace_from_json(trace_to_json(trace))
    result = await rescored(before, task, harness=ScriptedHarness(world))
    assert result.failures == ()
    assert (before.rewards, before.metrics) == (trace.rewards, trace.metrics)


async def test_everything_but_the_measurements_stays_what_the_rollout_was_and_the_trace_conforms() -> None:
    before = await play(World())
    trace = trace_from_json(trace_to_json(before))
    await rescored(trace, lambda trace: Sum())
    assert trace.reward == 8.0
    assert check_trace(trace) == []
    assert trace.info.pop("rescored") is not None
    for place, values in ((trace.rewards, before.rewards), (trace.metrics, before.metrics)):
        place.clear()
        place.update(values)  # type: ignore[arg-type]
    assert trace == before


async def test_metrics_come_first_then_rewards_then_judges_and_all_names_are_there_before_any() -> None:
    seen: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def noting(name: str, decorate: Any) -> Any:
        async def signal(self: Task, trace: Trace) -> float:
            seen.append((name, dict(trace.rewards), dict(trace.metrics)))
            await trio.sleep(1)
            return 1.0

        signal.__name__ = name
        return decorate(signal)

    async def judged() -> float:
        seen.append(("judge", dict(trace.rewards), dict(trace.metrics)))
        return 1.0

    cls = task_class(noting("a", reward), noting("b", metric), noting("c", reward))
    trace = made(rewards={"a": Reward(score=9.0), "old": Reward(score=9.0)}, metrics={"b": 9.0})
    await rescored(trace, cls, judges=[Verdict(value=judged)])
    one = Reward(score=1.0)
    assert sorted(seen) == [
        ("a", {"a": None, "c": None, "judge": None}, {"b": 1.0}),
        ("b", {"a": None, "c": None, "judge": None}, {"b": None}),
        ("c", {"a": None, "c": None, "judge": None}, {"b": 1.0}),
        ("judge", {"a": one, "c": one, "judge": None}, {"b": 1.0}),
    ]


async def test_signals_of_one_kind_run_side_by_side() -> None:
    async def first(self: Task) -> float:
        await trio.sleep(5)
        return 1.0

    async def second(self: Task) -> float:
        await trio.sleep(5)
        return 1.0

    await rescored(made(), task_class(reward(first), reward(second)))
    assert trio.current_time() < 6


async def test_the_tasks_judges_and_those_given_are_asked_and_their_tokens_are_extra() -> None:
    cls = task_class(judges=lambda self: [Verdict("own", {"style": 1, "tone": 0.5}, weight=3.0)])
    trace = made()
    result = await rescored(trace, cls, judges=[Verdict("given")])
    assert result.rewards == {
        "style": Reward(score=1, weight=3.0),
        "tone": Reward(score=0.5, weight=3.0),
        "given": Reward(score=0.5),
    }
    assert len(trace.extra_usage) == 2


async def test_the_metrics_of_a_harness_that_is_given_are_measured() -> None:
    class Counting(ScriptedHarness):
        @metric
        def steps(self, trace: Trace) -> float:
            return 3.0

    trace = made(metrics={"steps": 7, "gone": 1.0})
    result = await rescored(trace, Task, harness=Counting(World()))
    assert trace.metrics == {"steps": 3.0}
    assert (result.skipped, result.dropped) == ((), ("metrics.gone",))


# ---- nothing stale


async def test_names_that_a_mapping_gave_before_are_gone_and_no_stale_value_counts() -> None:
    def graded(self: Task) -> Any:
        return {"style": 1.0}

    trace = made(rewards={"style": Reward(score=9.0), "tone": Reward(score=9.0), "removed": Reward(score=9.0)})
    result = await rescored(trace, task_class(reward(graded)))
    assert trace.rewards == {"style": Reward(score=1.0)}
    assert trace.reward == 1.0
    assert result.dropped == ("rewards.tone", "rewards.removed")


async def test_a_signal_that_fails_now_leaves_none_where_its_old_value_was() -> None:
    def correct(self: Task) -> float:
        raise ValueError("no")

    trace = made(rewards={"correct": Reward(score=1.0)})
    result = await rescored(trace, task_class(reward(correct)))
    assert trace.rewards == {"correct": None}
    assert trace.reward is None
    assert [(error.type, error.message) for error in result.failures] == [
        ("TaskError", "reward 'correct' failed: ValueError: no")
    ]


async def test_what_takes_the_runtime_is_skipped_stays_none_and_is_named() -> None:
    def built(self: Task, runtime: Runtime) -> float:
        raise AssertionError("asked without a runtime")

    def lines(self: Task, trace: Trace, runtime: Runtime) -> float:
        raise AssertionError("asked without a runtime")

    def said(self: Task, trace: Trace) -> float:
        return 1.0

    trace = made(rewards={"built": Reward(score=9.0)}, metrics={"lines": 9.0})
    result = await rescored(trace, task_class(reward(built), metric(lines), reward(said)))
    assert trace.rewards == {"built": None, "said": Reward(score=1.0)}
    assert trace.metrics == {"lines": None}
    why = "it takes the runtime, which is gone"
    assert result.skipped == (
        Skipped(kind="metric", name="lines", why=why),
        Skipped(kind="reward", name="built", why=why),
    )
    assert result.failures == ()


async def test_metrics_that_may_be_a_harness_s_are_skipped_and_named_when_none_is_given() -> None:
    trace = scored(metrics={"turns": 9.0, "steps": 9.0})
    result = await rescored(trace, Sum)
    assert trace.metrics == {"turns": 0, "steps": None}
    (skipped,) = result.skipped
    assert (skipped.kind, skipped.name) == ("metric", "steps")
    assert "no harness was given" in skipped.why


async def test_a_metric_of_the_harness_that_takes_the_runtime_is_skipped_too() -> None:
    class Probing(ScriptedHarness):
        @metric
        def probed(self, runtime: Runtime) -> float:
            raise AssertionError("asked without a runtime")

    trace = made()
    result = await rescored(trace, Task, harness=Probing(World()))
    assert trace.metrics["probed"] is None
    assert [skipped.name for skipped in result.skipped] == ["probed"]


# ---- what fails


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None, {"a": "1"}, {1: 1.0}])
async def test_what_is_no_finite_number_is_a_task_error_that_names_the_signal(value: Any) -> None:
    def given(self: Task) -> Any:
        return value

    trace = made()
    result = await rescored(trace, task_class(reward(given)))
    (error,) = result.failures
    assert error.type == "TaskError"
    assert "reward 'given' returned" in error.message
    assert trace.rewards == {"given": None}


async def test_a_name_given_twice_is_a_task_error() -> None:
    def one(self: Task) -> Any:
        return {"x": 1.0}

    async def two(self: Task) -> Any:
        await trio.sleep(1)
        return {"x": 2.0}

    trace = made()
    result = await rescored(trace, task_class(reward(one), reward(two)))
    assert [error.message for error in result.failures] == [
        "reward 'two' gives 'x', which reward 'one' already gave; rename one"
    ]
    assert trace.rewards == {"x": Reward(score=1.0), "two": None}


async def test_a_failure_is_on_the_record_and_no_new_cause_of_the_rollouts_end() -> None:
    def bad(self: Task) -> float:
        raise ValueError("no")

    first = ErrorRecord(type="TaskError", message="the rollout's own")
    trace = made(path=SCORING_FAILED, errors=[first], stop="error")
    result = await rescored(trace, task_class(reward(bad)))
    assert result.verdict == "scored"
    assert (trace.ok, trace.errors, trace.transitions[-1].target) == (False, [first], "failed")
    told = trace.info["rescored"]
    assert isinstance(told, dict)
    (failure,) = told["failures"]  # type: ignore[union-attr,misc]
    assert isinstance(failure, dict)
    assert (failure["type"], failure["message"]) == ("TaskError", "reward 'bad' failed: ValueError: no")
    assert "ValueError" in str(failure["traceback"])


async def test_an_ok_trace_stays_ok_when_a_signal_fails_now() -> None:
    def bad(self: Task) -> float:
        raise ValueError("no")

    trace = trace_from_json(trace_to_json(await play(World())))
    await rescored(trace, lambda trace: task_class(reward(bad))())
    assert (trace.ok, trace.errors, trace.rewards) == (True, [], {"bad": None})
    assert check_trace(trace) == []


async def test_judges_that_cannot_be_named_fail_and_keep_nothing_else_from_running() -> None:
    def judges(self: Task) -> Any:
        raise ValueError("no judge today")

    trace = made(rewards={"judge": Reward(score=1.0)})
    result = await rescored(trace, task_class(base=Sum, judges=judges))
    assert [error.message for error in result.failures] == ["naming the judges failed: ValueError: no judge today"]
    assert trace.rewards == {"correct": Reward(score=4, weight=2.0)}


async def slow(self: Task) -> float:
    await trio.sleep(5)
    return 1.0


@pytest.mark.parametrize(("run", "task", "limit"), [(None, None, 600), (None, 7.0, 7), (9.0, 7.0, 9), (9.0, None, 9)])
async def test_scoring_is_bounded_by_the_settings_of_a_run_and_what_came_in_time_stands(
    run: float | None, task: float | None, limit: float
) -> None:
    async def endless(self: Task) -> float:
        await trio.sleep_forever()
        return 1.0

    trace = made()
    own: Any = {} if task is None else {"timeouts": {"scoring": task}}
    object.__setattr__(trace, "task", TaskInfo(type="Made", data=own))
    result = await rescored(
        trace, task_class(reward(endless), reward(slow)), timeouts=RolloutTimeouts(scoring=run) if run else None
    )
    assert trio.current_time() == pytest.approx(limit)
    assert trace.rewards == {"endless": None, "slow": Reward(score=1.0)}
    assert [(error.type, error.message) for error in result.failures] == [
        (
            "TaskError",
            f"scoring timed out after {limit:g} s (timeouts.scoring = {limit:g} s; still running: reward 'endless')",
        )
    ]


async def test_what_a_signal_raises_when_its_time_is_over_is_told_beside_the_failures() -> None:
    async def stubborn(self: Task) -> float:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cut off")

    trace = made()
    result = await rescored(trace, task_class(reward(stubborn)))
    assert len(result.failures) == 1
    told = trace.info["rescored"]
    assert isinstance(told, dict)
    assert told["after_timeout"] == ["ValueError: cut off"]


async def test_what_a_signal_writes_past_its_return_value_is_no_measurement() -> None:
    def sly(self: Task, trace: Any) -> float:
        trace.rewards["mine"] = "a lot"
        return 1.0

    trace = made()
    result = await rescored(trace, task_class(reward(sly)))
    assert trace.rewards == {"sly": Reward(score=1.0)}
    assert "trace.rewards['mine']" in result.failures[0].message


# ---- which traces


@pytest.mark.parametrize("path", [COMPLETED, SCORING_FAILED, SCORING_ABORTED])
async def test_a_trace_that_came_to_scoring_is_scored_again(path: tuple[str, ...]) -> None:
    trace = scored(path=path)
    assert (await rescored(trace, Sum)).verdict == "scored"
    assert trace.reward == 6.0


@pytest.mark.parametrize(
    ("path", "why"),
    [(FAILED, "its rollout failed before scoring"), (ABORTED, "its rollout aborted before scoring")],
)
async def test_one_that_never_came_to_scoring_stays_as_it_was(path: tuple[str, ...], why: str) -> None:
    trace = scored(path=path, rewards={"odd": None})
    before = trace_to_json(trace)
    result = await rescored(trace, Sum)
    assert (result.verdict, result.why) == ("never scored", why)
    assert trace_to_json(trace) == before


async def test_one_whose_rollout_goes_on_is_left_alone() -> None:
    trace = made()
    trace.is_completed = False
    result = await rescored(trace, Task)
    assert (result.verdict, result.why) == ("never scored", "its rollout has not ended")
    assert "rescored" not in trace.info


@pytest.mark.parametrize(("ok", "verdict"), [(True, "scored"), (False, "never scored")])
async def test_one_without_transitions_from_elsewhere_is_asked_for_its_flag(ok: bool, verdict: str) -> None:
    trace = Trace(id="t", task=TaskInfo(type="Task"), is_completed=True, ok=ok)
    assert (await rescored(trace, Task)).verdict == verdict


MISFITS: list[tuple[Any, str]] = [
    (Task, "the row does not fit Task: column 'answer': Task has no such column"),
    (task_class(), "the row does not fit Made: column 'answer': Made has no such column"),
    (Sum(), "it is of another task (its key is 'k', this one's"),
    (lambda trace: None, "the function gave no Task for it but NoneType"),
    (raises(KeyError), "TypeError: "),
]


@pytest.mark.parametrize(("task", "why"), MISFITS)
async def test_one_that_the_task_does_not_fit_is_refused_and_stays_as_it_was(task: Any, why: str) -> None:
    trace = scored(rewards={"correct": Reward(score=1.0)})
    before = trace_to_json(trace)
    result = await rescored(trace, task)
    assert result.verdict == "refused"
    assert result.why.startswith(why)
    assert trace_to_json(trace) == before


async def test_a_refused_one_keeps_no_other_from_being_scored() -> None:
    traces = [scored(id="a"), made(id="b"), scored(id="c", path=FAILED), scored(id="d")]
    object.__setattr__(traces[1], "task", TaskInfo(type="Sum", data={"answer": "four", "more": 1}))
    async with open_engine(gateway=False) as engine:
        results = await engine.rescore(traces, Sum)
    assert [(result.trace.id, result.verdict) for result in results] == [
        ("a", "scored"),
        ("b", "refused"),
        ("c", "never scored"),
        ("d", "scored"),
    ]
    assert "column 'more'" in results[1].why
    assert "answer: expected a whole number, not 'four'" in results[1].why


async def test_a_task_at_hand_scores_its_own_traces() -> None:
    @frozen(kw_only=True)
    class Keyed(Sum):
        @property
        def key(self) -> str:
            return "k"

    trace = scored()
    assert (await rescored(trace, Keyed(answer=5))).rewards == {"correct": Reward(score=5, weight=2.0)}


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_function_gives_the_task_of_each_trace_so_that_rows_can_be_corrected(kind: str) -> None:
    def corrected(trace: Trace) -> Task:
        return Sum(answer=int(str(trace.task.data["answer"])) * 100)

    async def later(trace: Trace) -> Task:
        await trio.sleep(1)
        return corrected(trace)

    trace = scored()
    await rescored(trace, corrected if kind == "plain" else later)
    assert trace.rewards == {"correct": Reward(score=300, weight=2.0)}
    assert trace.task.data == {"answer": 3, "idx": 3}


# ---- what stands on the trace


async def test_the_trace_says_when_and_as_what_it_was_scored_again_and_what_the_rollout_had_measured() -> None:
    old = {"correct": Reward(score=0.25, weight=0.5), "gone": None}
    trace = scored(rewards=old, metrics={"turns": 2, "steps": 3})
    trace.info["mine"] = 1
    result = await rescored(trace, Sum)
    assert set(trace.info) == {"mine", "rescored"}
    told = trace.info["rescored"]
    assert isinstance(told, dict)
    assert isinstance(told.pop("at"), float)
    assert told == {
        "times": 1,
        "task": "Sum",
        "failures": [],
        "skipped": [{"kind": "metric", "name": "steps", "why": result.skipped[0].why}],
        "dropped": ["rewards.gone"],
        "rollout": {
            "rewards": {"correct": {"score": 0.25, "weight": 0.5}, "gone": None},
            "metrics": {"turns": 2, "steps": 3},
        },
    }


async def test_scored_again_and_again_it_still_says_what_the_rollout_had_measured() -> None:
    trace = scored(rewards={"correct": Reward(score=0.25)})
    await rescored(trace, Sum)
    trace = trace_from_json(trace_to_json(trace))
    await rescored(trace, Sum)
    told = trace.info["rescored"]
    assert isinstance(told, dict)
    assert told["times"] == 2
    assert told["rollout"] == {"rewards": {"correct": {"score": 0.25, "weight": 1.0}}, "metrics": {}}


@pytest.mark.parametrize("odd", ["yes", {"rollout": 1}, {"rollout": {}, "times": "often"}])
async def test_a_record_that_somebody_else_wrote_there_does_no_harm(odd: Any) -> None:
    trace = scored()
    trace.info["rescored"] = odd
    assert (await rescored(trace, Sum)).verdict == "scored"
    assert trace_from_json(trace_to_json(trace)) == trace


async def test_info_that_a_signal_replaced_by_something_else_is_repaired() -> None:
    def vandal(self: Task, trace: Any) -> float:
        trace.info = "mine"
        return 1.0

    trace = scored()
    trace.info["kept"] = 1
    await rescored(trace, task_class(reward(vandal), base=Sum))
    assert set(trace.info) == {"kept", "rescored"}


async def test_an_ending_counts_exactly_where_there_is_a_reward_now() -> None:
    def bad(self: Task) -> float:
        raise ValueError("no")

    trace = trace_from_json(trace_to_json(await play(World())))
    ending = trace.ending
    assert ending is not None
    assert ending.counts
    await rescored(trace, lambda trace: task_class(reward(bad))())
    assert trace.ending == evolve(ending, counts=False)
    assert trace.info["rescored"]["rollout"]["counts"] is True  # type: ignore[index,call-overload]
    await rescored(trace, lambda trace: Sum())
    assert trace.ending == ending
    assert check_trace(trace) == []


async def test_a_rollout_that_failed_in_scoring_was_never_graded_and_its_reward_does_not_count() -> None:
    trace = trace_from_json(trace_to_json(await play(World(script={"score.good": raises(ValueError)}))))
    assert (trace.ok, trace.errors[0].type) == (False, "TaskError")
    ending = trace.ending
    assert ending is not None
    await rescored(trace, lambda trace: Sum())
    assert (trace.reward, trace.ending) == (8.0, ending)
    assert (ending.graded, ending.counts) == (False, False)
    assert check_trace(trace) == []


# ---- many, and being interrupted


async def test_many_are_scored_side_by_side_and_come_in_order() -> None:
    async def sleepy(self: Task, trace: Trace) -> float:
        await trio.sleep(10 - int(trace.id))
        return int(trace.id)

    traces = [made(id=str(number)) for number in range(10)]
    async with open_engine(gateway=False) as engine:
        results = await engine.rescore(traces, task_class(reward(sleepy)), max_concurrent=5)
        assert [result.trace.id for result in results] == list("0123456789")
        assert trio.current_time() < 20
        assert await engine.rescore([], Sum) == []


async def test_a_generator_of_traces_is_streamed_through_deliver() -> None:
    alive: set[int] = set()
    most = delivered = 0

    def traces() -> Iterator[Trace]:
        nonlocal most
        for number in range(50):
            alive.add(number)
            most = max(most, len(alive))
            yield made(id=str(number))

    async def deliver(result: Rescored) -> None:
        nonlocal delivered
        assert result.trace.id == str(delivered)
        alive.remove(delivered)
        delivered += 1

    async with open_engine(gateway=False) as engine:
        assert await engine.rescore(traces(), task_class(reward(slow)), max_concurrent=2, deliver=deliver) == []
    assert delivered == 50
    assert most <= 2 * 4 + 1


@pytest.mark.parametrize("manner", ["waits", "swallows"])
async def test_a_cancellation_leaves_what_was_being_scored_as_it_was(manner: str) -> None:
    async def stuck(self: Task, trace: Trace) -> float:
        trace.info["half"] = True
        trace.extra_usage.append(Usage(prompt_tokens=1, completion_tokens=1))
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if manner == "waits":
                raise
        return 1.0

    trace = scored(rewards={"correct": Reward(score=1.0)})
    trace.info["kept"] = 1
    before = trace_to_json(trace)
    with trio.move_on_after(3) as scope:
        await rescored(trace, task_class(reward(stuck), base=Sum))
    assert scope.cancelled_caught
    assert trace_to_json(trace) == before


async def test_an_interrupt_out_of_a_signal_comes_out_bare_and_the_trace_is_as_it_was() -> None:
    def pressed(self: Task) -> float:
        raise KeyboardInterrupt

    trace = scored(rewards={"correct": Reward(score=1.0)})
    before = trace_to_json(trace)
    with pytest.raises(KeyboardInterrupt):
        await rescored(trace, task_class(reward(pressed), base=Sum))
    assert trace_to_json(trace) == before


async def test_leaving_the_engine_ends_what_another_task_is_scoring_before_its_judges_are_left() -> None:
    events: list[str] = []

    class Held(Verdict):
        async def __aenter__(self) -> "Held":
            events.append("entered")
            return self

        async def __aexit__(self, *_: object) -> None:
            events.append("left")

    async def judging() -> float:
        try:
            await trio.sleep_forever()
        finally:
            events.append("interrupted")
        return 1.0

    trace = scored()
    before = trace_to_json(trace)
    told: list[str] = []

    async def score_it(engine: Any) -> None:
        try:
            await engine.rescore(trace, Sum, judges=[Held(value=judging)])
        except RuntimeError as error:
            told.append(str(error))

    async with trio.open_nursery() as nursery, open_engine(gateway=False) as engine:
        nursery.start_soon(score_it, engine)
        await trio.sleep(1)
    assert events == ["entered", "interrupted", "left"]
    assert told == ["the engine was left while it scored traces again; they are as they were"]
    assert trace_to_json(trace) == before


async def test_a_judge_that_holds_something_open_is_entered_once_and_left_with_the_engine() -> None:
    events: list[str] = []

    class Held(Verdict):
        async def __aenter__(self) -> "Held":
            events.append("entered")
            return self

        async def __aexit__(self, *_: object) -> None:
            events.append("left")

    judge = Held()
    async with open_engine(gateway=False) as engine:
        await engine.rescore([scored(), scored()], Sum, judges=[judge])
        await engine.rescore(scored(), Sum, judges=[judge])
        assert events == ["entered"]
    assert events == ["entered", "left"]


async def test_a_judge_that_cannot_be_entered_is_the_callers_error_and_nothing_is_scored() -> None:
    class Broken(Verdict):
        async def __aenter__(self) -> None:
            raise ValueError("no socket")

        async def __aexit__(self, *_: object) -> None:
            raise AssertionError("left what was never entered")

    trace = scored()
    with pytest.raises(ValueError, match="no socket"):
        await rescored(trace, Sum, judges=[Broken()])
    assert trace.rewards == {}


# ---- what does not fit together


class Nameless(Judge):
    """A judge without a name."""

    name = ""

    async def score(self, task: Task, trace: Trace) -> float:
        return 1.0


def wrong_stop(self: Task) -> bool:
    return True


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"task": 3}, TypeError, "a class of tasks, a task, or a function"),
    ({"task": int}, TypeError, "int is no class of tasks"),
    ({"task": task_class(stop(wrong_stop))}, TypeError, "wrong_stop"),
    ({"harness": object()}, TypeError, "harness must be a Harness"),
    ({"timeouts": 3}, TypeError, "timeouts must be a RolloutTimeouts"),
    ({"judges": [Nameless()]}, TypeError, "a judge needs a name"),
    ({"max_concurrent": 0}, ValueError, "at least 1"),
    ({"max_concurrent": True}, ValueError, "at least 1"),
]


@pytest.mark.parametrize(("wrong", "kind", "message"), WRONG)
async def test_what_does_not_fit_together_is_said_before_anything_is_scored(
    wrong: dict[str, Any], kind: type[Exception], message: str
) -> None:
    def none() -> Iterator[Trace]:
        raise AssertionError("a trace was asked for")
        yield

    settings = {"task": Sum, **wrong}
    async with open_engine(gateway=False) as engine:
        with pytest.raises(kind, match=message):
            await engine.rescore(none(), **settings)


async def test_outside_of_the_engines_block_it_says_so() -> None:
    engine = open_engine(gateway=False)
    with pytest.raises(RuntimeError, match="async with"):
        await engine.rescore(made(), Task)


async def test_a_row_that_was_written_is_the_row_that_is_read() -> None:
    task = Sum(prompt="2 + 2?", answer=4, timeouts=RolloutTimeouts(scoring=3))
    trace = made()
    object.__setattr__(trace, "task", TaskInfo(type="Sum", data=task_row(task), key=task.key))
    assert (await rescored(trace, Sum)).rewards == {"correct": Reward(score=4, weight=2.0)}
    assert (await rescored(trace, task)).verdict == "scored"


async def test_hooks_and_harness_code_are_not_run() -> None:
    world = World(script={"score.good": sleeps(1)})
    trace = await play(world, task=world_task(world, hooks=NoHooks))
    ran = list(world.began)
    await rescored(trace, Task, harness=ScriptedHarness(world))
    assert [event for event in world.began[len(ran) :] if not event.startswith("score.")] == []


async def test_what_hooks_have_put_in_the_place_of_info_and_ending_costs_no_other_trace_its_scoring() -> None:
    spoilt, well = scored(), scored()
    spoilt.info, spoilt.ending = 7, 3  # type: ignore[assignment]
    async with open_engine(gateway=False) as engine:
        results = await engine.rescore([spoilt, well], Sum)
    assert [result.verdict for result in results] == ["scored", "scored"]
    assert list(spoilt.info) == ["rescored"]


async def test_the_name_of_a_file_is_told_from_its_traces() -> None:
    async with open_engine(gateway=False) as engine:
        with pytest.raises(TypeError, match="names traces; read them"):
            await engine.rescore("run/traces.jsonl", Sum)  # type: ignore[call-overload]

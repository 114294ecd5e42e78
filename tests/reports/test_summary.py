"""The numbers of a run, against traces whose numbers are known."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.errors import ErrorRecord
from rollout_fsm.messages import Usage
from rollout_fsm.reports.summary import Outcome, Summary, p95
from rollout_fsm.trace import ModelCall, Reward, Span, TraceWarning
from tests.reports.made import ABORTED, FAILED, START, made

BROKEN = ErrorRecord(type="TaskError", message="no")
OVERLOADED = ErrorRecord(type="ProviderError", message="later", status_code=503)


def test_outcomes_are_counted_by_state_stop_condition_and_for_failures_the_primary_error() -> None:
    summary = Summary.of(
        [
            made(),
            made(),
            made(stop="max_turns"),
            made(path=FAILED, stop="error", errors=[BROKEN, OVERLOADED]),
            made(path=FAILED, stop="error", errors=[OVERLOADED]),
            made(path=ABORTED, stop="cancelled"),
        ]
    )

    assert (summary.rollouts, summary.ok, summary.not_ok) == (6, 3, 3)
    assert summary.outcomes == {
        Outcome(state="completed", stop_condition="agent_completed"): 2,
        Outcome(state="completed", stop_condition="max_turns"): 1,
        Outcome(state="failed", stop_condition="error", error="TaskError"): 1,
        Outcome(state="failed", stop_condition="error", error="ProviderError"): 1,
        Outcome(state="aborted", stop_condition="cancelled"): 1,
    }


def test_a_mean_is_over_the_rollouts_in_which_it_was_measured_and_says_how_many_these_are() -> None:
    summary = Summary.of(
        [
            made(rewards={"correct": Reward(score=1.0)}, metrics={"length": 10}),
            made(rewards={"correct": Reward(score=0.5)}, metrics={"length": None}),
            made(rewards={"correct": None}, metrics={"length": 40}),
            made(path=FAILED, stop="error", errors=[BROKEN]),
        ]
    )

    (correct,), (length,) = summary.rewards, summary.metrics
    assert (correct.name, correct.mean, correct.measured, correct.of, correct.missing) == ("correct", 0.75, 2, 4, 2)
    assert (length.name, length.mean, length.measured, length.of) == ("length", 25.0, 2, 4)
    assert (summary.reward.mean, summary.reward.measured) == (0.75, 2)


def test_a_signal_that_was_measured_nowhere_has_no_mean_and_is_still_listed() -> None:
    summary = Summary.of([made(rewards={"correct": None})])

    (correct,) = summary.rewards
    assert (correct.mean, correct.measured, correct.missing, correct.weights) == (None, 0, 1, ())
    assert summary.reward.mean is None


def test_a_rewards_mean_is_that_of_its_scores_and_the_whole_is_weighted() -> None:
    rewards = {"right": Reward(score=1.0, weight=2.0), "short": Reward(score=-0.5, weight=0.1)}
    summary = Summary.of([made(rewards=rewards), made(rewards={**rewards, "right": Reward(score=0.0, weight=2.0)})])

    assert [(signal.name, signal.mean, signal.weights) for signal in summary.rewards] == [
        ("right", 0.5, (2.0,)),
        ("short", -0.5, (0.1,)),
    ]
    assert summary.reward.mean == pytest.approx((1.95 - 0.05) / 2)


def test_the_mean_of_many_small_numbers_loses_nothing_to_rounding() -> None:
    summary = Summary.of(made(metrics={"tenth": 0.1}) for _ in range(10))

    assert summary.metrics[0].mean == 0.1


def test_spans_are_counted_where_they_were_closed_and_the_agents_is_shared() -> None:
    whole = {"boot": 1.0, "setup": 2.0, "agent": 10.0, "finalize": 0.5, "scoring": 4.0}
    traces = [
        made(spans=whole, model_seconds=4.0),
        made(spans={**whole, "agent": 20.0}, model_seconds=5.0),
        made(spans={"boot": 3.0}, path=FAILED, stop="error", errors=[BROKEN]),
    ]
    traces[2].timing.setup = Span(start=START)  # never closed: no length

    spans = {spread.name: spread for spread in Summary.of(traces).spans}

    assert list(spans) == ["boot", "setup", "agent", "agent.model", "agent.harness", "finalize", "scoring"]
    assert (spans["boot"].median, spans["boot"].measured, spans["boot"].of) == (1.0, 3, 3)
    assert (spans["setup"].median, spans["setup"].measured) == (2.0, 2)
    assert (spans["agent"].median, spans["agent"].p95) == pytest.approx((15.0, 19.5))
    assert (spans["agent.model"].median, spans["agent.harness"].median) == pytest.approx((4.5, 10.5))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_the_95th_percentile_lies_between_the_median_and_the_largest(numbers: list[float]) -> None:
    found = p95(numbers)

    assert statistics.median(numbers) <= found * (1 + 1e-12)
    assert found <= max(numbers) * (1 + 1e-12)


def test_the_95th_percentile_of_a_hundred_and_one_steps_is_the_ninety_fifth() -> None:
    assert p95([float(step) for step in range(101)]) == pytest.approx(95.0)
    assert p95([7.0]) == 7.0
    with pytest.raises(ValueError, match="nothing has no percentile"):
        p95([])


def test_turns_and_tokens_are_summed_and_unknown_usage_is_not_zero() -> None:
    known = Usage(prompt_tokens=10, completion_tokens=5)
    summary = Summary.of([made(turns=2, usage=known), made(turns=3, usage=None), made()])

    totals = summary.totals
    assert (totals["turns"].total, totals["turns"].most, totals["turns"].known) == (5, 3, 3)
    assert totals["turns"].mean == pytest.approx(5 / 3)
    assert (totals["input_tokens"].total, totals["input_tokens"].known, totals["input_tokens"].of) == (20, 2, 3)
    assert (totals["output_tokens"].total, totals["output_tokens"].mean) == (10, 5.0)
    assert totals["total_tokens"].total == 30


def test_a_failed_model_call_without_usage_leaves_the_tokens_known() -> None:
    trace = made(turns=1, usage=Usage(prompt_tokens=1, completion_tokens=1))
    trace.record_call(ModelCall(time=Span(start=START, end=START), error=OVERLOADED))

    assert Summary.of([trace]).totals["output_tokens"].known == 1


def test_warnings_are_counted_by_kind() -> None:
    leaked = TraceWarning(kind="leaked", message="box")
    summary = Summary.of([made(warnings=[leaked, leaked, TraceWarning(kind="close", message="x")]), made()])

    assert summary.warnings == {"leaked": 2, "close": 1}


def test_a_trace_from_elsewhere_without_transitions_has_the_state_that_its_flags_claim() -> None:
    good, bad, unfinished = made(), made(path=FAILED, errors=[BROKEN], stop="error"), made()
    for trace in (good, bad, unfinished):
        trace.transitions.clear()
    unfinished.ok = unfinished.is_completed = False

    states = [Outcome.of(trace).state for trace in (good, bad, unfinished)]

    assert states == ["completed", "failed", "unfinished"]


def test_the_first_message_of_each_type_of_error_is_kept_as_its_reason() -> None:
    other = ErrorRecord(type="TaskError", message="another")
    traces = [made(path=FAILED, errors=[error]) for error in (BROKEN, other, OVERLOADED)]
    assert Summary.of([made(), *traces]).reasons == {"TaskError": "no", "ProviderError": "later"}

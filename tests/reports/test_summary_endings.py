"""Endings and earlier attempts in the numbers of a run."""

from attrs import evolve

from rollout_fsm.machine.endings import Ending
from rollout_fsm.messages import JSON
from rollout_fsm.reports.summary import CUT_OFF, Summary
from rollout_fsm.trace import Trace
from tests.reports.made import made

GOOD = Ending(name="agent_completed", cause="agent", graded=True, counts=True, retryable=False)


def told(attempts: JSON) -> Trace:
    trace = made()
    trace.info["attempts"] = attempts
    return trace


def test_endings_are_counted_by_all_that_they_say() -> None:
    traces = [made(), made(), made(), made()]
    masked = evolve(GOOD, counts=False)
    for trace, ending in zip(traces, (GOOD, GOOD, masked, None), strict=True):
        trace.ending = ending

    assert Summary.of(traces).endings == {GOOD: 2, masked: 1}


def test_earlier_attempts_are_counted_by_their_primary_error_else_their_ending_else_the_end_of_their_process() -> None:
    failed = {"id": "a", "ending": "provider_error", "errors": [{"type": "ProviderError"}, {"type": "TaskError"}]}
    stopped = {"id": "b", "ending": "no_progress", "errors": []}
    killed = {"id": "c", "errors": [], "cut_off": "stepping", "start": 1.0}

    summary = Summary.of([made(), told([failed, failed, killed]), told([stopped])])

    assert (summary.rollouts, summary.retried) == (3, 2)
    assert summary.earlier == {"ProviderError": 2, CUT_OFF: 1, "no_progress": 1}


def test_what_others_wrote_under_that_name_is_no_attempt() -> None:
    odd: list[JSON] = ["text", 3, {"a": 1}, [1, {"errors": 3}, {"errors": ["x"]}]]

    summary = Summary.of([told(value) for value in odd])

    assert summary.retried == 1
    assert summary.earlier == {"?": 2}

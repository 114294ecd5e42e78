"""Scenarios with a retry policy: each attempt has a script of its own, and the engine drives."""

from typing import Any

import pytest

from rollout_fsm import Task, Trace, reward
from rollout_fsm.simulation import FormatError, load_scenario, simulate

BUSY = {"segments": [{"turns": [{"error": "ProviderError:503"}]}]}
FINE = [{"turns": [{}]}]


def retried(*attempts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"segments": FINE, "attempts": list(attempts), "retry": {"max_retries": 3, "backoff": [4]}, **fields}


def test_past_the_last_script_an_attempt_goes_as_the_scenario_says() -> None:
    outcome = simulate(retried(BUSY, BUSY, segments=[{"turns": [{}, {}]}]))
    assert (outcome.state, outcome.num_turns, outcome.clock) == ("completed", 2, 8.0)
    assert [attempt["began"] for attempt in outcome.attempts] == [0.0, 4.0]


def test_the_pauses_of_a_policy_are_the_same_in_every_play() -> None:
    scenario = retried(BUSY, BUSY, BUSY, retry={"max_retries": 3, "backoff": 2})
    one, other = simulate(scenario), simulate(scenario)
    assert one.to_json() == other.to_json()
    first, second, third = (attempt["began"] for attempt in one.attempts)
    assert 0 == first < 1 <= second <= 2 < third


def test_a_failure_of_one_attempt_is_none_of_the_next_ones() -> None:
    once = {"segments": [{"turns": [{"error": "ProviderError:503", "error_times": 1}]}]}
    outcome = simulate(retried(once, once, **once))
    assert [outcome.state, len(outcome.attempts)] == ["failed", 3]  # in each attempt the first call fails


def test_a_cancellation_between_two_attempts_leaves_the_first_as_it_was() -> None:
    outcome = simulate(retried(BUSY, cancel_at={"time": 2}))
    assert (outcome.state, outcome.raised, outcome.clock) == ("failed", "Cancelled", 2.0)
    assert (outcome.errors, outcome.attempts) == (["ProviderError"], [])


def test_a_task_of_ones_own_is_tried_again() -> None:
    class Counts(Task):
        scored = 0

        @reward
        def good(self, trace: Trace) -> float:
            type(self).scored += 1
            return float(trace.num_turns)

    outcome = simulate(retried(BUSY), task=Counts(prompt="hello"))
    assert (outcome.reward, Counts.scored, len(outcome.attempts)) == (1.0, 1, 1)


def test_without_a_policy_no_attempts_are_told() -> None:
    outcome = simulate({"segments": FINE})
    assert (outcome.ending and outcome.ending["name"], outcome.attempts) == ("agent_completed", [])


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [
        ({"attempts": [{}]}, "attempts: there is no `retry`"),
        (retried(mode="interaction"), "mode: with `retry` the engine drives"),
        (retried(caller_stop={"at": {"time": 1}, "condition": "x"}), "caller_stop: with `retry`"),
        (retried(between_segments=3), "between_segments: with `retry`"),
        (retried({"segments": [{"user_message": "hello"}]}), "segments: with `retry`"),
        (retried(retry={"include": ["provider_eror"]}), "retry: include: no ending 'provider_eror'; did you mean"),
        (retried(retry={"max_retries": -1}), "retry: max_retries must be a whole number"),
        (retried(retry={"backoff": []}), "retry.backoff: expected a number of seconds or an array of them"),
        (retried(retry={"backoff": [1, -1]}), "retry.backoff: expected a number of seconds of at least 0"),
        (retried(retry={"retries": 1}), "retry.retries: unknown key"),
        (retried({"rewards": []}), "attempts[0].rewards: unknown key"),
    ],
)
def test_what_does_not_go_with_a_policy_is_refused(scenario: dict[str, Any], fault: str) -> None:
    with pytest.raises(FormatError) as refused:
        load_scenario(scenario)
    assert any(told.startswith(fault) for told in refused.value.faults), refused.value.faults


def test_a_wrong_task_is_refused_before_any_attempt() -> None:
    with pytest.raises(TypeError, match="a rollout needs a Task, not str"):
        simulate(retried(), task="hello")  # type: ignore[arg-type]

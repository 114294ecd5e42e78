"""Whether a finished rollout is tried again, and after how long: decided on its trace alone (tests/test_attempts.py has
the engine do it)."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm import (
    OverlongPromptError,
    ProviderError,
    RetryPolicy,
    RolloutError,
    SandboxError,
    TaskError,
    Trace,
    Usage,
    ending_of,
    trace_from_json,
    trace_to_json,
)
from rollout_fsm.ending import settle_endings
from rollout_fsm.errors import ErrorRecord
from rollout_fsm.machine.endings import EndingChange
from rollout_fsm.retry import SPREAD, attempt_record
from rollout_fsm.trace import Reward, TaskInfo, TransitionRecord

WAYS = {
    "stepping": (("open", "created", "booting"), ("errored", "stepping", "failing"), ("released", "failing", "failed")),
    "waiting": (("open", "created", "booting"), ("errored", "waiting", "failing"), ("released", "failing", "failed")),
    "cancelled": (
        ("open", "created", "booting"),
        ("cancel", "booting", "aborting"),
        ("released", "aborting", "aborted"),
    ),
    "completed": (("close", "waiting", "closing"), ("released", "releasing", "completed")),
}


class FlakyProviderError(ProviderError):
    """A kind of the embedder's own."""


def ended(way: str, *errors: str, status: int | None = None, stop: str | None = "error", **fields: Any) -> Trace:
    """A finished trace, with the ending that the shipped table gives it."""
    changes: dict[str, EndingChange] = fields.pop("changes", {})
    trace = Trace(
        id=fields.pop("id", "3f"),
        task=TaskInfo(type="Sum"),
        is_completed=True,
        ok=way == "completed",
        stop_condition=stop,
        errors=[ErrorRecord(type=kind, message="no", status_code=status) for kind in errors],
        transitions=[
            TransitionRecord(time=float(time), trigger=trigger, source=source, target=target)
            for time, (trigger, source, target) in enumerate(WAYS[way])
        ],
        **fields,
    )
    trace.ending = ending_of(trace, settle_endings(changes), stops={"said_done"})
    return trace


BUSY = ended("stepping", "ProviderError", status=429)
REJECTED = ended("stepping", "ProviderError", status=401)
CRASHED = ended("stepping", "HarnessError")
DONE = ended("completed", stop="max_turns", rewards={"good": Reward(score=0.0)})


def tried(policy: RetryPolicy, trace: Trace, attempt: int = 1, *, borrowed: bool = False) -> bool:
    return policy.again(trace, attempt=attempt, borrowed=borrowed) is not None


def policy(retries: int = 3, **fields: Any) -> RetryPolicy:
    return RetryPolicy(max_retries=retries, **fields)


# ---- what is tried again


def test_by_default_nothing_is_tried_again() -> None:
    assert RetryPolicy().again(BUSY, attempt=1, borrowed=False) is None


def test_no_more_than_so_many_attempts_follow_the_first() -> None:
    assert [tried(policy(2), BUSY, attempt) for attempt in (1, 2, 3, 4)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("trace", "again"),
    [
        (BUSY, True),
        (REJECTED, False),
        (CRASHED, False),
        (DONE, False),
        (ended("stepping", "SandboxError"), True),
        (ended("stepping", "FlakyProviderError"), True),
        (ended("stepping", "OverlongPromptError"), False),
        (ended("waiting", "ProviderError", status=503), False),
    ],
    ids=repr,
)
def test_without_names_the_ending_says_what_is_tried_again(trace: Trace, again: bool) -> None:
    assert tried(policy(), trace) == again


@pytest.mark.parametrize(
    ("include", "covered"),
    [
        (["harness_error"], "crashed"),
        (["HarnessError"], "crashed"),
        ([ProviderError], "busy rejected overlong flaky owner"),
        (["ProviderError"], "busy rejected overlong flaky owner"),
        ([OverlongPromptError], "overlong"),
        ([FlakyProviderError], "flaky"),
        (["FlakyProviderError"], "flaky"),
        (["provider_error"], "busy flaky"),
        (["provider_rejected", "max_turns"], "rejected overlong done"),
        ([RolloutError], "busy rejected overlong flaky owner crashed"),
        ([Exception], "busy rejected overlong flaky owner crashed key"),
        ([LookupError], "key"),
        (["KeyError"], "key"),
        (["caller_error"], "owner key"),
        (["said_done"], "said"),
        ([], ""),
    ],
    ids=str,
)
def test_what_is_named_is_tried_again_and_nothing_else(include: list[Any], covered: str) -> None:
    traces = {
        "busy": BUSY,
        "rejected": REJECTED,
        "crashed": CRASHED,
        "overlong": ended("stepping", "OverlongPromptError", status=400),
        "flaky": ended("stepping", "FlakyProviderError"),
        "owner": ended("waiting", "ProviderError"),
        "key": ended("waiting", "KeyError"),
        "done": DONE,
        "said": ended("completed", stop="said_done"),
    }
    assert {name for name, trace in traces.items() if tried(policy(include=include), trace)} == {*covered.split()}


def test_what_is_excluded_is_never_tried_again() -> None:
    assert not tried(policy(exclude=["provider_error"]), BUSY)
    assert not tried(policy(exclude=[RolloutError], include=["provider_error"]), BUSY)
    assert not tried(
        policy(exclude=["ProviderError"], include=["FlakyProviderError"]), ended("stepping", "FlakyProviderError")
    )
    assert tried(policy(exclude=[OverlongPromptError], include=[ProviderError]), BUSY)


def test_only_the_primary_error_decides() -> None:
    after = ended("stepping", "SandboxError", "ProviderError")
    assert tried(policy(include=["SandboxError"]), after)
    assert not tried(policy(include=["ProviderError"]), after)
    assert tried(policy(exclude=["ProviderError"]), after)


@pytest.mark.parametrize("include", [None, [SandboxError], [Exception], ["SandboxError"]])
def test_a_cancelled_rollout_is_never_tried_again(include: Any) -> None:
    trace = ended("cancelled", "SandboxError")
    assert not tried(policy(include=include), trace)


def test_a_borrowed_runtime_is_never_used_again() -> None:
    assert not tried(policy(), BUSY, borrowed=True)
    assert not tried(policy(include=["provider_error"]), BUSY, borrowed=True)


def test_a_completed_rollout_is_tried_again_only_where_the_embedder_says_so() -> None:
    said = {"stop": "said_done", "rewards": {"good": Reward(score=1.0)}}
    assert not tried(policy(), ended("completed", **said))
    assert tried(policy(include=["said_done"]), ended("completed", **said))
    assert tried(policy(), ended("completed", **said, changes={"(stop)": {"retryable": True}}))


def test_a_trace_without_an_ending_is_not_tried_again() -> None:
    trace = ended("stepping", "SandboxError")
    trace.ending = None
    assert not tried(policy(include=["SandboxError"]), trace)


# ---- how long it waits


def test_a_pause_doubles_up_to_the_cap_and_half_of_it_is_drawn() -> None:
    waits = [policy(9, backoff=2.0, max_backoff=30.0).again(BUSY, attempt=n, borrowed=False) for n in range(1, 9)]
    for wait, whole in zip(waits, [2, 4, 8, 16, 30, 30, 30, 30], strict=True):
        assert wait is not None
        assert whole * (1 - SPREAD) < wait <= whole
    assert len(set(waits)) == len(waits)


def test_the_same_attempt_of_the_same_rollout_waits_equally_long_and_another_ones_does_not() -> None:
    one = policy().again(ended("stepping", "SandboxError", id="a"), attempt=1, borrowed=False)
    assert one == policy().again(ended("stepping", "SandboxError", id="a"), attempt=1, borrowed=False)
    ids = [f"rollout-{number}" for number in range(100)]
    waits = [policy().again(ended("stepping", "SandboxError", id=each), attempt=1, borrowed=False) for each in ids]
    assert len(set(waits)) == 100
    assert min(wait or 0 for wait in waits) < 0.6 < 0.9 < max(wait or 0 for wait in waits)


def test_no_pause_is_a_pause_of_no_seconds() -> None:
    assert policy(backoff=0).again(BUSY, attempt=1, borrowed=False) == 0.0
    assert policy(max_backoff=0).again(BUSY, attempt=3, borrowed=False) == 0.0


def test_a_function_says_how_long_each_retry_waits() -> None:
    asked: list[int] = []

    def backoff(retry: int) -> float:
        asked.append(retry)
        return 100 * retry

    given = policy(backoff=backoff, max_backoff=1.0)
    assert [given.again(BUSY, attempt=attempt, borrowed=False) for attempt in (1, 2, 3, 4)] == [100, 200, 300, None]
    assert asked == [1, 2, 3]


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), None, "soon", True])
def test_a_function_that_returns_no_seconds_is_told_so(value: Any) -> None:
    with pytest.raises(ValueError, match="backoff must be a finite number of seconds"):
        policy(backoff=lambda retry: value).again(BUSY, attempt=1, borrowed=False)


@given(st.floats(0, 1e308), st.floats(0, 1e308), st.integers(1, 10**6), st.text(max_size=5), st.integers(0, 10**6))
def test_every_pause_is_a_number_of_seconds_within_the_cap(
    backoff: float, cap: float, attempt: int, id: str, more: int
) -> None:
    given = RetryPolicy(max_retries=attempt + more, backoff=backoff, max_backoff=cap)
    wait = given.again(ended("stepping", "SandboxError", id=id), attempt=attempt, borrowed=False)
    assert wait is not None
    assert 0 <= wait <= cap


# ---- what makes no policy


@pytest.mark.parametrize(
    ("fields", "kind", "fault"),
    [
        ({"max_retries": -1}, ValueError, "max_retries must be a whole number of at least 0, not -1"),
        ({"max_retries": True}, ValueError, "max_retries must be a whole number"),
        ({"max_retries": 1.0}, ValueError, "max_retries must be a whole number"),
        ({"include": "ProviderError"}, TypeError, r"given as a sequence: write \['ProviderError'\]"),
        ({"exclude": ProviderError}, TypeError, r"given as a sequence: write \[ProviderError\]"),
        ({"include": [3]}, TypeError, "include names classes of errors, their names, or names of endings, not 3"),
        ({"exclude": [int]}, TypeError, "exclude names classes of errors"),
        ({"include": [""]}, TypeError, "include names classes"),
        ({"include": ["provider_eror"]}, ValueError, "no ending 'provider_eror'; did you mean 'provider_error'"),
        ({"exclude": ["max_turn"]}, ValueError, "exclude: no ending 'max_turn'; did you mean 'max_turns'"),
        ({"include": ["ProvidrError"]}, ValueError, "no type of errors 'ProvidrError'; did you mean 'ProviderError'"),
        ({"include": ["RateLimitError"]}, ValueError, "no type of errors 'RateLimitError'.*or pass the class itself"),
        ({"include": ["(stop)"]}, ValueError, r"no ending '\(stop\)'"),
        ({"include": ["cancelled"]}, ValueError, "'cancelled' is an ending of aborted rollouts"),
        ({"include": ["runtime_lost"]}, ValueError, "never tried again"),
        ({"backoff": -0.5}, ValueError, "backoff must be a finite number of seconds"),
        ({"backoff": True}, ValueError, "backoff must be"),
        ({"backoff": "soon"}, ValueError, "backoff must be"),
        ({"max_backoff": float("inf")}, ValueError, "max_backoff must be a finite number"),
    ],
)
def test_what_makes_no_policy_is_refused_with_what_to_write(
    fields: dict[str, Any], kind: type[Exception], fault: str
) -> None:
    with pytest.raises(kind, match=fault):
        RetryPolicy(**fields)


def test_an_aborted_ending_may_be_excluded_and_a_name_of_ones_own_be_taken() -> None:
    RetryPolicy(exclude=["cancelled"], include=["env_broken"])


def test_a_policy_is_a_value() -> None:
    assert policy(include=["task_error"]) == policy(include=("task_error",))
    assert hash(policy(include=[TaskError])) == hash(policy(include=[TaskError]))


# ---- what a later attempt tells of an earlier one


def test_an_attempt_is_told_with_its_id_its_ending_its_errors_and_its_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = ended("stepping", "ProviderError", "SandboxError", status=429)
    trace.timing.start = 0.5
    trace.extra_usage.append(Usage(prompt_tokens=1, completion_tokens=2))
    monkeypatch.setattr(Trace, "usage", Usage(prompt_tokens=10, completion_tokens=5, cost=0.5))
    assert attempt_record(trace) == {
        "id": "3f",
        "ending": "provider_error",
        "errors": [
            {"type": "ProviderError", "message": "no", "status_code": 429},
            {"type": "SandboxError", "message": "no", "status_code": 429},
        ],
        "usage": {**usage(10, 5), "cost": 0.5},
        "extra_usage": [usage(1, 2)],
        "start": 0.5,
        "end": 2.0,
    }


def usage(prompt: int, completion: int) -> dict[str, Any]:
    known = Usage(prompt_tokens=prompt, completion_tokens=completion)
    names = ("prompt_tokens", "completion_tokens", "cached_input_tokens", "reasoning_tokens")
    return {name: value for name in names if (value := getattr(known, name)) is not None}


def test_what_there_is_none_of_is_left_out() -> None:
    assert attempt_record(ended("cancelled")) == {
        "id": "3f",
        "ending": "cancelled",
        "errors": [],
        "start": 0.0,
        "end": 2.0,
    }


Spoil = Callable[[Trace], object]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda trace: trace.errors.insert(0, "boom"),
        lambda trace: trace.extra_usage.append(3),
        lambda trace: trace.transitions.clear(),
        lambda trace: setattr(trace, "ending", None),
    ],
)
def test_a_spoilt_trace_can_still_be_told(spoil: Spoil) -> None:
    trace = ended("stepping", "SandboxError")
    spoil(trace)
    told = attempt_record(trace)
    assert json.loads(json.dumps(told)) == told
    assert [error["type"] for error in told["errors"]] == ["SandboxError"]  # type: ignore[union-attr, index, call-overload]


def test_attempts_on_a_trace_load_back_equal() -> None:
    trace = ended("completed", stop="agent_completed")
    trace.info["attempts"] = [attempt_record(BUSY), attempt_record(CRASHED)]
    assert trace_from_json(trace_to_json(trace)) == trace

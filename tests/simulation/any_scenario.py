"""Any scenario at all, as hypothesis draws it: every field, in every combination that the schema allows.

What is open by the schema is kept out: no two signals of one kind and no two calls of one segment end at one instant,
since their order is then the scheduler's. So a drawn scenario has one outcome, whatever the schedule.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

ERRORS = (
    "ValueError",
    "TaskError",
    "SandboxError:x",
    "TimeoutError",
    "TurnRefused",
    "StopIteration",
    "RuntimeLifetimeError",
    "IllegalTransition",
    "KeyboardInterrupt",
    "SystemExit",
    "ExceptionGroup:ValueError,SandboxError",
    "ExceptionGroup:TurnRefused,ValueError",
    "ExceptionGroup:KeyboardInterrupt,ValueError",
)
MODEL_ERRORS = (
    "ProviderError:500",
    "ProviderError:429",
    "ProviderError",
    "Overlong",
    "ValueError",
    "TaskError",
    "SystemExit",
)
PHASES = (
    *("boot", "setup", "harness_setup", "session_open", "session_close", "finalize", "scoring", "cleanup"),
    *("runtime_stop", "segment:0", "segment:1", "turn:0", "turn:1", "between:0", "between:1"),
)

seconds = st.sampled_from([0, 1, 2, 3, 5, 7, 10, 20])
delays = st.one_of(seconds, seconds, seconds, st.just("forever"))
errors = st.sampled_from(ERRORS)
flag = st.just(True)


@st.composite
def some(draw: st.DrawFn, /, **fields: st.SearchStrategy[Any]) -> dict[str, Any]:
    """An object that has any of these fields: half of a few, some five of many.

    Each is drawn for itself, so that those that do not matter are shrunk away, which leaves a scenario worth reading.
    """
    last = max(1, len(fields) // 5)
    return {name: draw(field) for name, field in fields.items() if draw(st.integers(0, last)) == last}


hooks = some(delay=delays, error=errors, ignore_cancel=flag)
turns = some(
    input_tokens=st.integers(0, 200),
    output_tokens=st.integers(0, 100),
    usage=st.just(False),
    delay=seconds,
    error=st.sampled_from(MODEL_ERRORS),
    error_times=st.integers(0, 2),
    retries=st.integers(0, 2),
    text=st.sampled_from(["", "yes"]),
    tool_call=flag,
    rewind_to=st.integers(0, 4),
    hang_up=seconds.map(lambda time: time + 1 / 4),
)
segments = some(
    turns=st.lists(turns, max_size=3),
    delay=seconds,
    tail_delay=seconds,
    exit_code=st.sampled_from([1, 3]),
    on_error=st.sampled_from(["exit", "swallow", "continue"]),
    exit_error=errors,
    raw_exit_error=errors,
    ignore_cancel=flag,
    unkillable=flag,
    ignore_refusal=flag,
    parallel=flag,
    exit_after=seconds.map(lambda time: time + 1 / 8),
    late_call_after=seconds.map(lambda time: time + 1 / 16),
    user_message=st.just("well?"),
)
stops = st.fixed_dictionaries(
    {"boundary": st.sampled_from(["trace", "request", "response"])},
    optional={
        "fire_at_turn": st.integers(1, 3),
        "priority": st.integers(-1, 1),
        "raises": errors,
        "returns": st.sampled_from([False, True, None, 1]),
        "delay": delays,
    },
)
intercepts = st.fixed_dictionaries(
    {"boundary": st.sampled_from(["request", "response"])},
    optional={
        "at_turn": st.integers(1, 3),
        "action": st.sampled_from(["rewrite", "observe", "raise"]),
        "text": st.just("rewritten"),
        "raises": errors,
        "delay": delays,
    },
)
signals = some(
    value=st.sampled_from([0, 2.5, "nan", "text", {"x": 1.0}, {"x": 1.0, "y": 2}, {}]),
    weight=st.sampled_from([-1.0, 0.5]),
    delay=delays,
    error=errors,
    ignore_cancel=flag,
)
triggers = st.one_of(
    st.fixed_dictionaries({"time": seconds}),
    st.fixed_dictionaries({"phase": st.sampled_from(PHASES)}, optional={"after": seconds}),
)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Any scenario."""
    bounds = st.sampled_from([0, 1, 3, 5, 10, 30])
    caps = st.sampled_from([0, 1, 2, 10, 50, 200])
    names = ("boot", "setup", "agent", "finalize", "scoring", "hook", "drain", "close", "release")
    verbs = st.sampled_from(["open", "step", "close", "cancel", "fail"])
    drawn = draw(
        some(
            mode=st.sampled_from(["run", "interaction", "manual"]),
            task=some(prompt=st.none(), system_prompt=st.just("be brief"), has_user=flag),
            runtime=some(start=hooks, stop=hooks, alive=st.just(False)),
            setup=hooks,
            harness_setup=hooks,
            tools=st.lists(some(start=hooks, stop=hooks), max_size=2),
            session_open=hooks,
            timeouts=some(**dict.fromkeys(names, bounds)),
            policy=some(
                agent_expiry=st.just("stop"),
                no_progress=st.just("fail"),
                unknown_usage=st.sampled_from(["warn", "fail"]),
            ),
            limits=some(max_turns=caps, max_input_tokens=caps, max_output_tokens=caps, max_total_tokens=caps),
            segments=st.lists(segments, max_size=3),
            stops=st.lists(stops, max_size=2),
            intercepts=st.lists(intercepts, max_size=2),
            rewards=st.lists(signals, max_size=2),
            metrics=st.lists(signals, max_size=2),
            harness_metrics=st.lists(signals, max_size=1),
            finalize=hooks,
            session_close=hooks,
            cleanup=hooks,
            borrowed_runtime=flag,
            owner_stops_runtime_at=triggers,
            cancel_at=st.lists(triggers, min_size=1, max_size=2),
            caller_stop=st.fixed_dictionaries({"at": triggers, "condition": st.just("operator")}),
            other_calls=st.lists(st.fixed_dictionaries({"at": triggers, "verb": verbs}), max_size=3),
            fail_between_segments=st.fixed_dictionaries({"after": st.integers(0, 1), "error": errors}),
            between_segments=seconds,
            manual=some(
                keep_stepping=flag,
                step_before_open=flag,
                bare_step=flag,
                step_after_close=flag,
                close_twice=flag,
                close_without_open=flag,
                abort_instead_of_close=flag,
                stamp_completed=st.just(False),
            ),
        )
    )
    for kind in ("tools", "stops", "intercepts", "rewards", "metrics", "harness_metrics"):
        for place, part in enumerate(drawn.get(kind, ())):
            part["name"] = f"{kind}_{place}"
    _apart(drawn)
    return drawn


def _apart(scenario: Mapping[str, Any]) -> None:
    """No two of what runs side by side end at one instant."""
    parts = [signal for kind in ("rewards", "metrics", "harness_metrics") for signal in scenario.get(kind, ())]
    for segment in scenario.get("segments", ()):
        if segment.get("parallel"):
            segment["stagger"] = 1 / 2
            parts += segment.get("turns", ())
    for place, part in enumerate(parts):
        if place and part.get("delay") != "forever":
            part["delay"] = part.get("delay", 0) + place / 1024

"""A trace of any outcome and of any text is written, read back equal, and told by the command line without harm."""

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollout_fsm import Trace, check_trace, read_traces, trace_from_json, trace_to_json
from rollout_fsm.limits import LIMIT_NAMES
from rollout_fsm.simulation import simulate
from rollout_fsm.traces_file import TracesFile
from tests.cli.conftest import CommandLine
from tests.machine import oracle
from tests.profiles import examples
from tests.trace_strategies import HOSTILE, traces

Outcome = tuple[str, str | None, str | None]
"""Final state, stop condition, type of the primary error."""

TURN: Mapping[str, Any] = {"turns": [{}]}
SLOW: Mapping[str, Any] = {"turns": [{"delay": 9}]}
OUTCOMES: Mapping[Outcome, Mapping[str, Any]] = {
    ("completed", "agent_completed", None): {"segments": [TURN]},
    ("completed", "user_closed", None): {"mode": "interaction", "segments": [TURN]},
    ("completed", "no_progress", None): {"segments": [{}]},
    ("completed", "agent_timeout", None): {
        "segments": [SLOW],
        "timeouts": {"agent": 5},
        "policy": {"agent_expiry": "stop"},
    },
    **{("completed", limit, None): {"segments": [TURN], "limits": {limit: 0}} for limit in LIMIT_NAMES},
    ("completed", "context_length", None): {"segments": [{"turns": [{"error": "Overlong"}]}]},
    ("completed", "enough", None): {
        "segments": [TURN],
        "stops": [{"name": "enough", "boundary": "trace", "fire_at_turn": 0}],
    },
    ("completed", "operator", None): {"caller_stop": {"at": {"phase": "before"}, "condition": "operator"}},
    ("failed", "error", "TaskError"): {"setup": {"error": "ValueError"}},
    ("failed", "error", "SandboxError"): {"runtime": {"start": {"error": "OSError"}}},
    ("failed", "error", "HarnessError"): {"segments": [{"exit_code": 3}]},
    ("failed", "error", "ToolsetError"): {"tools": [{"name": "shell", "start": {"error": "OSError"}}]},
    ("failed", "error", "ProviderError"): {"segments": [{"turns": [{"error": "ProviderError:503"}]}]},
    ("failed", "error", "InterceptionError"): {"setup": {"error": "InterceptionError"}},
    ("failed", "error", "KeyError"): {
        "mode": "interaction",
        "segments": [TURN],
        "fail_between_segments": {"after": 0, "error": "KeyError"},
    },
    ("failed", "agent_completed", "TaskError"): {
        "segments": [TURN],
        "rewards": [{"name": "broken", "error": "ValueError"}, {"name": "fine"}],
    },
    ("failed", "max_turns", "TaskError"): {
        "segments": [TURN],
        "limits": {"max_turns": 0},
        "finalize": {"error": "ValueError"},
    },
    ("aborted", "cancelled", None): {"segments": [SLOW], "cancel_at": {"time": 5}},
    ("aborted", None, None): {"mode": "manual", "manual": {"close_without_open": True}},
    ("aborted", "error", "TaskError"): {
        "mode": "manual",
        "setup": {"error": "ValueError"},
        "manual": {"abort_instead_of_close": True},
    },
    ("aborted", "operator", None): {
        "mode": "manual",
        "segments": [TURN],
        "caller_stop": {"at": {"phase": "segment:0"}, "condition": "operator"},
        "manual": {"abort_instead_of_close": True},
    },
}

HUGE = "\ud800\u2028\x00 \u202e" * 200_000
"""A million characters, each of which somebody trips over."""


def written(folder: Path, *some: Trace) -> str:
    with TracesFile(folder / "traces.jsonl") as file:
        for trace in some:
            file.append(trace)
    return "traces.jsonl"


def read(path: Path) -> Iterator[Trace]:
    def fault(number: int, error: object) -> None:
        raise AssertionError(f"line {number}: {error}")

    return read_traces(path, on_fault=fault)


def acting(text: str) -> set[str]:
    """What in a text would act on a terminal, hide, or be no text."""
    return {char for char in set(text) - {"\n"} if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


def test_every_outcome_is_written_read_back_equal_checked_and_shown(cli: CommandLine) -> None:
    played = {outcome: simulate(scenario).trace for outcome, scenario in OUTCOMES.items()}
    path = written(cli.folder, *played.values())

    again = list(read(cli.folder / path))
    assert again == list(played.values())
    for (state, condition, error), trace in zip(played, again, strict=True):
        assert check_trace(trace) == []
        assert (trace.transitions[-1].target, trace.stop_condition) == (state, condition)
        assert (trace.errors[0].type if trace.errors else None) == error
        assert trace_from_json(trace_to_json(trace)) == trace
    assert cli("check", path).out == f"{path}: {len(played)} traces, all conform\n"
    lines = cli("show", path).out.splitlines()[1:]
    for (state, condition, error), line in zip(played, lines, strict=True):
        assert line.split()[1:3] == [state, error or condition or "–"]


def test_those_are_all_outcomes() -> None:
    sets = {row[2] for rows in oracle.table().values() for row in rows} - {None, "(given)"}
    final = {cells[0] for cells in map(oracle.cells, oracle.STATES.strip().splitlines()) if cells[1] == "final"}
    assert {state for state, _, _ in OUTCOMES} == final
    assert {condition for _, condition, _ in OUTCOMES} >= {*sets, *LIMIT_NAMES, "context_length", None}


def hostile(text: str) -> dict[str, Any]:
    """A scenario in which everybody says this."""
    return {
        "task": {"prompt": text, "system_prompt": text},
        "segments": [
            {"turns": [{"text": text, "tool_call": True}, {"text": text}, {"error": f"ProviderError:500:{text}"}]}
        ],
        "intercepts": [{"name": "say", "boundary": "response", "at_turn": 2, "text": f"{text}!"}],
        "caller_stop": {"at": {"phase": "turn:1"}, "condition": text or "-"},
        "session_close": {"error": f"ValueError:{text}"},
        "finalize": {"error": f"TaskError:{text}"},
        "cleanup": {"error": f"ValueError:{text}"},
        "runtime": {"stop": {"error": f"OSError:{text}"}},
    }


@pytest.mark.parametrize("text", [*HOSTILE, HUGE], ids=lambda text: ascii(text[:12]))
def test_a_rollout_in_which_everybody_says_this_is_read_back_equal_and_told_without_harm(
    cli: CommandLine, text: str
) -> None:
    trace = simulate(hostile(text)).trace
    path = written(cli.folder, trace)

    assert list(read(cli.folder / path)) == [trace]
    assert (cli.folder / path).read_bytes().count(b"\n") == 1
    for command in (("check",), ("show",), *([] if text is HUGE else [("show", "--full")])):
        said = cli(*command, path)
        assert said.code == 0
        assert acting(said.out) | acting(said.err) == set()


@settings(examples(1 / 10), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(some=st.lists(traces(), max_size=2))
def test_any_traces_are_read_back_from_their_file_equal_and_told_without_harm(
    cli: CommandLine, some: list[Trace]
) -> None:
    (cli.folder / "traces.jsonl").unlink(missing_ok=True)
    path = written(cli.folder, *some, Trace(id="last", task=simulate(OUTCOMES["aborted", None, None]).trace.task))

    assert list(read(cli.folder / path))[:-1] == some
    for one in (cli("check", path), cli("show", path, "last"), cli("show", path)):
        assert acting(one.out) | acting(one.err) == set()

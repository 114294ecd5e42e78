"""Scenarios are read exactly: every fault at once, each with its path."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollout_fsm.errors import OverlongPromptError, ProviderError
from rollout_fsm.simulation import FormatError, Scenario, load_scenario
from rollout_fsm.simulation.faults import ModelError, ScriptedError
from rollout_fsm.simulation.scenario import FOREVER


def faults(scenario: Any) -> list[str]:
    with pytest.raises(FormatError) as refusal:
        load_scenario(scenario)
    return sorted(refusal.value.faults)


def test_an_empty_scenario_is_a_plain_run() -> None:
    assert load_scenario({}) == Scenario()


def test_every_fault_is_reported_with_its_path() -> None:
    assert faults(
        {
            "mod": "run",
            "mode": "walk",
            "setup": {"delay": "never", "error": "ValueErro"},
            "runtime": {"start": {"ignore_cancel": 1}, "alive": "yes"},
            "timeouts": {"agent": -1, "boot": -2, "hook": "x"},
            "limits": {"max_turns": 2.0, "max_input_tokens": -1},
            "segments": [{"turns": [{"delay": "forever", "input_tokens": -1}]}, {"turns": {}}],
            "stops": [{"boundary": "trace"}],
            "rewards": [{"name": "", "value": None, "weight": True}],
            "cancel_at": [{"phase": "segment"}, {"time": 1, "phase": "boot"}, {}, {"phase": "boot", "after": -2}],
            "metrics": [{"name": "finalize"}],
            "caller_stop": {"at": {"phase": "before", "after": 2}, "condition": ""},
            "other_calls": [{"at": {"phase": "before"}, "verb": "stop"}],
        }
    ) == [
        "caller_stop.at: the phase 'before' has no `after`",
        "caller_stop.condition: expected a name, not an empty string",
        "cancel_at[0].phase: no phase 'segment'; did you mean 'segment:0'?",
        "cancel_at[1]: a trigger has either a time or a phase",
        "cancel_at[2]: a trigger has either a time or a phase",
        "cancel_at[3].after: expected a number of seconds of at least 0, not -2 (a whole number)",
        "limits.max_input_tokens: max_input_tokens must be a whole number of at least 0, or None for no cap, not -1",
        "limits.max_turns: expected a whole number, not 2.0 (a number)",
        "metrics[0].name: 'finalize' means something else to a task; choose another name",
        "mod: unknown key; did you mean 'mode'?",
        "mode: expected 'run' or 'interaction' or 'manual', not 'walk' (a string)",
        "other_calls[0].at: no phase 'before' here: nothing can happen before the rollout",
        "other_calls[0].verb: expected 'open' or 'step' or 'close' or 'cancel' or 'fail', not 'stop' (a string)",
        "rewards[0].name: expected a name, not an empty string",
        "rewards[0].value: expected a number, an object of numbers or a string, not None",
        "rewards[0].weight: expected a number, not True (true or false)",
        "runtime.alive: expected true or false, not 'yes' (a string)",
        "runtime.start.ignore_cancel: expected true or false, not 1 (a whole number)",
        "segments[0].turns[0].delay: expected a number of seconds, not 'forever' (a string)",
        "segments[0].turns[0].input_tokens: expected a whole number of at least 0, not -1",
        "segments[1].turns: expected an array, not an object",
        "setup.delay: expected a number of seconds or 'forever', not 'never' (a string)",
        "setup.error: no exception type 'ValueErro'; did you mean 'ValueError'?",
        "stops[0].name: missing",
        "timeouts.agent: agent must be a number of seconds of at least 0, or None, not -1",
        "timeouts.boot: boot must be a number of seconds of at least 0, or None, not -2",
        "timeouts.hook: expected a number, not 'x' (a string)",
    ]


def test_a_stop_that_bears_a_stop_condition_of_the_engine_is_a_fault_of_its_name() -> None:
    assert faults({"stops": [{"boundary": "trace", "name": "max_turns"}, {"boundary": "trace", "name": "error"}]}) == [
        "stops[0].name: 'max_turns' is a stop condition of the engine's own; choose another name (L31)",
        "stops[1].name: 'error' is a stop condition of the engine's own; choose another name (L31)",
    ]


@pytest.mark.parametrize("data", [[], "segments", 3, None, [{}]])
def test_what_is_no_object_is_no_scenario(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(data))
    assert [fault.partition(",")[0] for fault in faults(path)] == ["expected an object"]


def test_a_case_is_read_for_its_scenario_and_its_faults_are_inside() -> None:
    case = {"about": "a", "rules": ["L1"], "scenario": {"task": {"prompt": None}}, "expect": {"ok": False}}
    assert load_scenario(case).task.prompt is None
    assert faults({**case, "expects": {}, "scenario": {"sement": []}}) == [
        "expects: unknown key; did you mean 'expect'?",
        "scenario.sement: unknown key; did you mean 'segments'?",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "it is not JSON"),
        ('{"mode": "run", "mode": "manual"}', "'mode' given twice in one object"),
        ('{"rewards": [{"name": "r", "value": NaN}]}', 'written with "nan"'),
        ('{"between_segments": 1e999}', "at least 0"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_exact_json_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(text)
    assert len(faults(path)) == 1
    assert fault in faults(path)[0]


def test_a_hook_needs_a_name_of_its_own_that_means_nothing_else() -> None:
    assert faults(
        {
            "stops": [{"boundary": "trace", "name": "good"}],
            "rewards": [{"name": "good"}, {"name": "setup"}],
            "metrics": [{"name": "fine"}],
            "harness_metrics": [{"name": "fine"}, {"name": "fine"}, {"name": "cleanup"}],
        }
    ) == [
        "harness_metrics[1].name: 'fine' is there twice; a harness has one metric of a name",
        "harness_metrics[2].name: 'cleanup' means something else to a harness; choose another name",
        "rewards[0].name: 'good' is the name of stops[0] too; a task has one hook of a name",
        "rewards[1].name: 'setup' means something else to a task; choose another name",
    ]


def test_what_could_never_happen_is_a_fault() -> None:
    assert faults(
        {
            "tools": [{"name": "shell"}],
            "metrics": [{"name": "steps"}],
            "intercepts": [{"boundary": "response", "name": "adds", "action": "add_message"}],
            "close_error": "OSError",
            "session_close": {"error": "OSError"},
            "cancel_at": [{"phase": "tool_stop:shell"}, {"phase": "tool_start:shel"}, {"phase": "score.steps"}],
            "owner_stops_runtime_at": {"phase": "score.step"},
        }
    ) == [
        "cancel_at[1]: the phase 'tool_start:shel' means a tool server 'shel' that the scenario does not have",
        "close_error: session_close.error is given too, and both mean the same",
        "intercepts[0].action: 'add_message' is for requests; a response has one message",
        "owner_stops_runtime_at: the phase 'score.step' means a signal 'step' that the scenario does not have",
    ]


@pytest.mark.parametrize(
    "word", ["", "bot", "segment:", "segment:-1", "segment:x", "turn:1.0", "tool_start:", "score."]
)
def test_a_word_that_is_no_phase_is_refused(word: str) -> None:
    assert faults({"cancel_at": {"phase": word}})[0].startswith("cancel_at.phase: ")


def test_one_trigger_and_a_list_of_one_are_the_same() -> None:
    assert load_scenario({"cancel_at": {"time": 3}}) == load_scenario({"cancel_at": [{"time": 3}]})


def test_shorthands_are_the_errors_of_their_hooks() -> None:
    scenario = load_scenario({"close_error": "OSError", "cleanup_error": "OSError:x", "runtime_stop_error": "KeyError"})
    made = [
        hook.error and hook.error.text for hook in (scenario.session_close, scenario.cleanup, scenario.runtime.stop)
    ]
    assert made == ["OSError", "OSError:x", "KeyError"]


def test_forever_is_a_delay_of_hooks_stops_interceptors_and_signals() -> None:
    scenario = load_scenario(
        {
            "finalize": {"delay": "forever"},
            "stops": [{"boundary": "trace", "name": "a", "delay": "forever"}],
            "intercepts": [{"boundary": "request", "name": "b", "delay": "forever"}],
            "rewards": [{"name": "c", "delay": "forever"}],
        }
    )
    parts = (scenario.finalize, scenario.stops[0], scenario.intercepts[0], scenario.rewards[0])
    assert [part.delay for part in parts] == [FOREVER] * 4


# ---- exceptions as text


@pytest.mark.parametrize(
    ("text", "type_", "said"),
    [
        ("ValueError", ValueError, ""),
        ("ValueError:no such: box", ValueError, "no such: box"),
        ("SandboxError", Exception, ""),
        ("SystemExit:3", SystemExit, "3"),
    ],
)
def test_an_exception_is_its_type_and_its_message(text: str, type_: type[BaseException], said: str) -> None:
    script = ScriptedError.read(text)
    made, another = script.make(), script.make()
    assert isinstance(made, type_)
    assert str(made) == said
    assert type(made).__name__ == text.partition(":")[0]
    assert made is not another


def test_a_group_has_its_exceptions_in_order() -> None:
    group = ScriptedError.read("ExceptionGroup:ValueError,SandboxError, KeyError").make()
    assert isinstance(group, ExceptionGroup)
    assert [type(part).__name__ for part in group.exceptions] == ["ValueError", "SandboxError", "KeyError"]


def test_a_group_with_an_interrupt_is_no_ordinary_exception() -> None:
    group = ScriptedError.read("ExceptionGroup:ValueError,KeyboardInterrupt").make()
    assert isinstance(group, BaseExceptionGroup)
    assert not isinstance(group, Exception)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("ProviderError:503", 503, "the provider answered 503"),
        ("ProviderError:429:slow: down", 429, "slow: down"),
        ("ProviderError:no route", None, "no route"),
    ],
)
def test_a_provider_has_a_status(text: str, status: int | None, said: str) -> None:
    made = ModelError.read(text).make()
    assert isinstance(made, ProviderError)
    assert (made.status_code, str(made)) == (status, said)


def test_overlong_is_a_prompt_beyond_the_context_window() -> None:
    assert isinstance(ModelError.read("Overlong").make(), OverlongPromptError)


@pytest.mark.parametrize(
    "text", ["", "Error", "int", "GeneratorExit", "UnicodeDecodeError", "ExceptionGroup", "ExceptionGroup:"]
)
def test_what_cannot_be_raised_is_a_fault(text: str) -> None:
    assert faults({"setup": {"error": text}})[0].startswith("setup.error: ")


def test_a_model_raises_no_group() -> None:
    assert faults({"segments": [{"turns": [{"error": "ExceptionGroup:ValueError"}]}]}) == [
        "segments[0].turns[0].error: a scripted model raises single errors, no group"
    ]

"""`rollout-fsm show`: a trace as a person reads it."""

from pathlib import Path

import pytest

from rollout_fsm.errors import ErrorRecord
from rollout_fsm.messages import Usage
from rollout_fsm.trace import Reward, Trace, TraceWarning
from rollout_fsm.traces_file import TracesFile
from tests.cli.conftest import CommandLine
from tests.reports.made import ABORTED, FAILED, START, made, say

FULL = {"boot": 1.0, "setup": 1.0, "agent": 2.0, "finalize": 1.0, "scoring": 1.0}


def written(folder: Path, *traces: Trace) -> str:
    with TracesFile(folder / "traces.jsonl") as file:
        for trace in traces:
            file.append(trace)
    return "traces.jsonl"


def test_the_only_trace_is_shown_whole(cli: CommandLine) -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=5)
    trace = made(
        rewards={"right": Reward(score=0.5, weight=2.0), "short": None},
        metrics={"length": 12},
        warnings=[TraceWarning(kind="leaked", message="a box")],
        spans=FULL,
        turns=1,
        usage=usage,
    )

    said = cli("show", written(cli.folder, trace))

    assert said.code == 0
    assert said.out.splitlines() == [
        "rollout t-1",
        "  task    Sum #3",
        "  ended   completed, agent_completed",
        "  reward  1",
        "  turns   1, tokens 10 in, 5 out",
        "  time    boot 1.0 s, setup 1.0 s, agent 2.0 s, finalize 1.0 s, scoring 1.0 s",
        "",
        "    0.000  open           created → booting",
        "    1.000  booted         booting → setup",
        "    2.000  ready          setup → waiting",
        "    3.000  step           waiting → stepping",
        "    3.000    user         question 0",
        "    3.000    assistant    answer 0   0 ms, 10+5 tokens",
        "    4.000  segment_ended  stepping → waiting",
        "    5.000  close          waiting → closing",
        "    6.000  closed         closing → finalizing",
        "    7.000  finalized      finalizing → scoring",
        "    8.000  scored         scoring → releasing",
        "    9.000  released       releasing → completed",
        "",
        "rewards",
        "  right                        0.500   × 2",
        "  short                        not measured",
        "",
        "metrics",
        "  length                       12",
        "",
        "warnings",
        "  leaked  a box",
    ]


def test_several_traces_are_a_line_each(cli: CommandLine) -> None:
    error = ErrorRecord(type="ProviderError", message="later", status_code=503)
    path = written(
        cli.folder,
        made(id="aa-1", rewards={"right": Reward(score=1.0)}),
        made(id="ab-2", path=FAILED, stop="error", errors=[error]),
        made(id="b-3", path=ABORTED, stop="cancelled"),
    )

    lines = cli("show", path).out.splitlines()

    assert [line.split() for line in lines] == [
        ["id", "outcome", "stop", "or", "error", "reward", "turns", "time", "task"],
        ["aa-1", "completed", "agent_completed", "1", "0", "9.0", "s", "Sum", "#3"],
        ["ab-2", "failed", "ProviderError", "–", "0", "6.0", "s", "Sum", "#3"],
        ["b-3", "aborted", "cancelled", "–", "0", "4.0", "s", "Sum", "#3"],
    ]


def test_a_trace_is_found_by_the_beginning_of_its_id_if_that_is_of_one_alone(cli: CommandLine) -> None:
    path = written(cli.folder, made(id="aa-1"), made(id="ab-2"), made(id="ab-2-more"))

    assert cli("show", path, "aa").out.startswith("rollout aa-1\n")
    assert cli("show", ".", "ab-2").out.startswith("rollout ab-2\n"), "a whole id is one, whatever others begin with it"
    several, none = cli("show", path, "a"), cli("show", path, "x")
    assert (several.code, none.code) == (2, 2)
    assert several.err == (
        "rollout-fsm: traces.jsonl: 3 traces have an id that begins with 'a': aa-1, ab-2, ab-2-more\n"
    )
    assert "no trace's id begins with 'x'; `rollout-fsm show traces.jsonl` lists them" in none.err


def test_errors_are_shown_with_their_status_oldest_first(cli: CommandLine) -> None:
    errors = [
        ErrorRecord(type="ProviderError", message="overloaded", status_code=503),
        ErrorRecord(type="TaskError", message="and\nthat"),
    ]

    out = cli("show", written(cli.folder, made(path=FAILED, stop="error", errors=errors))).out

    assert out.endswith("\nerrors\n  ProviderError  [HTTP 503] overloaded\n  TaskError  and that\n")


@pytest.mark.parametrize("flags", [(), ("--full",)])
def test_hostile_text_is_shown_and_not_obeyed(flags: tuple[str, ...], cli: CommandLine) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\ud800"
    trace = made(
        id=f"t{evil}",
        stop=evil,
        rewards={evil: None},
        metrics={evil: 1.0},
        warnings=[TraceWarning(kind=evil, message=evil)],
        path=FAILED,
        errors=[ErrorRecord(type=evil, message=evil)],
    )
    trace.task.data["name"] = evil  # type: ignore[index]
    say(trace, evil, evil * 100, usage=None, time=START + 3)

    said = cli("show", *flags, written(cli.folder, trace))
    listed = cli("show", *flags, written(cli.folder, trace))

    for text in (said.out, said.err, listed.out):
        assert not set(text) & set("\x1b\x07\x9b\u202e\ud800")
    assert "\\x1b[2J" in said.out


def test_what_was_said_is_shortened_to_a_line_unless_all_of_it_is_asked_for(cli: CommandLine) -> None:
    trace = made()
    say(trace, "first\nsecond", "word " * 500, usage=None, time=START + 3)
    path = written(cli.folder, trace)

    short, full = cli("show", path).out, cli("show", path, "--full").out

    assert "user         first second\n" in short
    assert "… (2,500 characters)" in short
    assert max(map(len, short.splitlines())) <= 160
    assert full.count("word ") == 500
    assert "user         first\n" + " " * 26 + "second\n" in full


def test_a_damaged_line_is_said_and_passed_over(cli: CommandLine) -> None:
    path = written(cli.folder, made(id="a"))
    with open(path, "a") as file:
        file.write('{"id": 3}\n{"torn": ')

    said = cli("show", path)

    assert said.code == 0
    assert said.out.startswith("rollout a\n")
    assert said.err.startswith("rollout-fsm: traces.jsonl: line 2: ")
    assert len(said.err.splitlines()) == 1


def test_an_empty_file_is_said_to_be_one(cli: CommandLine) -> None:
    said = cli("show", cli.file("traces.jsonl", ""))

    assert (said.code, said.out) == (0, "")
    assert said.err == "rollout-fsm: there are no traces in traces.jsonl\n"

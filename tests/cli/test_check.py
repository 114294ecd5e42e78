"""`rollout-fsm check`: the proofs in words, and traces that are no lives of the machine."""

import pytest

from rollout_fsm.machine import Fault
from rollout_fsm.machine.declaration import DeclarationError
from rollout_fsm.machine.endings_proof import ENDING_PROPERTIES
from rollout_fsm.machine.proofs import PROPERTIES
from tests.cli.conftest import ROWS, CommandLine
from tests.cli.test_show import written
from tests.reports.made import made


def test_the_shipped_declaration_is_proven_property_by_property(cli: CommandLine) -> None:
    said = cli("check")

    assert (said.code, said.err) == (0, "")
    head, *lines = said.out.splitlines()
    assert head.startswith("the declaration: 17 states, ")
    assert [line.split()[:2] for line in lines] == [["holds", name] for name in (*PROPERTIES, *ENDING_PROPERTIES)]


def test_a_property_that_does_not_hold_is_said_with_the_path_that_shows_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(property="P5", message="waiting: does not accept 'cancel'", states=("waiting",))
    monkeypatch.setattr("rollout_fsm.cli.check.prove", lambda declaration: [fault])

    said = cli("check")

    assert said.code == 1
    assert "  fails  P5   every state that is neither final nor shielded accepts cancel\n" in said.out
    assert "           P5: waiting: does not accept 'cancel'\n" in said.out
    assert "  holds  P6   " in said.out
    assert "    ?    S1   with the turns bounded, no life goes on for ever\n" in said.out
    assert said.out.endswith("?: not tried, since these proofs stand on those before\n1 fault\n")


def test_a_life_that_breaks_a_promise_is_said_beside_the_properties_that_hold(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(property="S4", message="completed (…): ends here, and must end failed", states=("completed",))
    monkeypatch.setattr("rollout_fsm.cli.check.prove", lambda declaration: [fault])

    said = cli("check")

    assert said.code == 1
    assert "  holds  S3   " in said.out
    assert "  fails  S4   " in said.out
    assert "  holds  M1   " in said.out
    assert "?" not in said.out


def test_a_wrong_declaration_is_said_fault_by_fault(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise DeclarationError(["stepping.toml: on[2].to: no state 'stoped'", "x.toml: kind: missing"])

    monkeypatch.setattr("rollout_fsm.cli.check.load_machine", load)

    said = cli("check")

    assert said.code == 1
    assert said.err == "stepping.toml: on[2].to: no state 'stoped'\nx.toml: kind: missing\n"


def test_the_traces_of_a_run_conform(cli: CommandLine) -> None:
    cli("run", cli.file("t.jsonl", '{"prompt": "?"}\n' * 3), "-m", "scripted", "-o", "out")

    said = cli("check", "out", "out/traces.jsonl")

    assert (said.code, said.err) == (0, "")
    assert said.out == "out/traces.jsonl: 3 traces, all conform\n" * 2


def test_a_trace_that_does_not_conform_is_named_with_what_is_wrong(cli: CommandLine) -> None:
    wrong = made(id="bad-1")
    del wrong.transitions[4]
    wrong.timing.boot = wrong.timing.setup = None

    said = cli("check", written(cli.folder, wrong))

    assert said.code == 1
    assert "bad-1: transition 5 (waiting -close-> closing): starts in 'waiting' instead of 'stepping'" in said.out
    assert "bad-1: timing.boot is missing" in said.out
    assert said.out.endswith("traces.jsonl: 1 trace, 1 do not conform\n")


def test_a_line_that_is_no_trace_is_a_fault(cli: CommandLine) -> None:
    said = cli("check", cli.file("traces.jsonl", ROWS))

    assert said.code == 1
    assert said.out.splitlines()[0].startswith("traces.jsonl: line 1: ")
    assert said.out.endswith("traces.jsonl: 0 traces, all conform, 2 more lines are no traces\n")


def test_a_file_without_traces_proves_nothing_and_is_refused(cli: CommandLine) -> None:
    said = cli("check", cli.file("traces.jsonl", ""))

    assert (said.code, said.err) == (2, "rollout-fsm: traces.jsonl: there are no traces in it\n")


def test_a_number_that_no_float_holds_is_a_fault_of_its_line_and_the_others_are_checked(cli: CommandLine) -> None:
    path = written(cli.folder, made(id="huge", metrics={"m": 1}), made(id="good"))
    huge, good = (cli.folder / path).read_text().splitlines()
    assert '"m":1' in huge
    (cli.folder / path).write_text("\n".join([huge.replace('"m":1', '"m":1' + "0" * 400), good, ""]))

    said = cli("check", path)

    assert said.code == 1
    assert "line 1: " in said.out
    assert "expected a number that a float can hold, not one of more than 300 digits" in said.out
    assert said.out.endswith("traces.jsonl: 1 trace, 1 do not conform, 1 more lines are no traces\n")


def test_a_path_that_is_too_long_is_refused_in_one_line(cli: CommandLine) -> None:
    said = cli("check", "a" * 300)

    assert (said.code, said.out) == (2, "")
    assert said.err == f"rollout-fsm: {'a' * 300}: cannot be read: File name too long\n"

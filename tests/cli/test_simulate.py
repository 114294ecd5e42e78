"""`rollout-fsm simulate`: outcomes on standard output, what is wrong on standard error."""

import json

from tests.cli.conftest import CommandLine

STOPPED = '{"segments": [{"turns": [{"delay": 3}, {}]}], "limits": {"max_turns": 1}}'


def test_a_scenario_becomes_an_outcome_in_json(cli: CommandLine) -> None:
    said = cli("simulate", cli.file("a.json", STOPPED))

    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["stop_condition"] == "max_turns"


def test_many_scenarios_have_a_line_each_and_a_wrong_one_has_its_own(cli: CommandLine) -> None:
    said = cli(
        "simulate", "--many", cli.file("a.json", STOPPED), cli.file("b.json", "{}x"), cli.file("c.json", STOPPED)
    )

    lines = [json.loads(line) for line in said.out.splitlines()]
    assert said.code == 2
    assert [line.get("stop_condition") for line in lines] == ["max_turns", None, "max_turns"]
    assert "error" in lines[1]
    assert said.err.startswith("rollout-fsm: b.json: ")


def test_several_scenarios_need_the_flag(cli: CommandLine) -> None:
    said = cli("simulate", cli.file("a.json", STOPPED), cli.file("b.json", STOPPED))

    assert (said.code, said.out) == (2, "")
    assert "--many" in said.err

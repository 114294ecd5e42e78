"""What the command line does to the loggers of libraries, and that it is undone."""

import logging

from rollout_fsm.cli.logs import QUIET, logging_to_terminal
from tests.cli.conftest import CommandLine


def levels() -> dict[str, int]:
    return {name: logging.getLogger(name).level for name in QUIET}


def test_libraries_that_say_each_step_are_heard_from_warnings_on_while_a_command_runs_and_no_longer() -> None:
    before = levels()
    assert "transitions" in before

    with logging_to_terminal(2):
        assert set(levels().values()) == {logging.WARNING}
        assert not logging.getLogger("transitions.core").isEnabledFor(logging.INFO)
        assert logging.getLogger("rollout_fsm").isEnabledFor(logging.DEBUG)

    assert levels() == before


def test_a_run_that_says_everything_has_no_step_of_the_state_machines_library_in_it(cli: CommandLine) -> None:
    cli.file("tasks.jsonl", '{"prompt": "Hello?"}\n')

    said = cli("run", "tasks.jsonl", "-m", "scripted", "-o", "out", "-vv")

    assert said.code == 0
    assert "rollout_fsm: rollout done: id=" in said.err
    assert "transitions" not in said.err + (cli.folder / "out" / "logs" / "run.log").read_text(encoding="utf-8")

"""`rollout-fsm simulate`: scenarios in virtual time, their outcomes as JSON."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rollout_fsm.cli.command import Command
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.harmless import harmless
from rollout_fsm.cli.screen import Screen
from rollout_fsm.simulation import simulate_files

__all__ = ["simulate"]


def simulate(
    *scenarios: Annotated[Path, Parameter(metavar="SCENARIOS.json")],
    many: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> Command:
    """Run scenarios on the real engine under a virtual clock, and print their outcomes as JSON.

    Parameters
    ----------
    scenarios
        What happens to one rollout: runtime, task, harness and model as a script.
    many
        Take several files, and print one line for each; one that is wrong has a line too.
    """

    def command(screen: Screen) -> int:
        if not scenarios:
            raise UsageError("simulate needs a scenario: rollout-fsm simulate SCENARIO.json")
        return simulate_files(
            scenarios,
            many=many,
            write=lambda line: screen.write(f"{line}\n"),
            complain=lambda line: screen.complain(f"rollout-fsm: {harmless(line, keep='')}"),
        )

    return command

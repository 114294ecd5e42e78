"""`rollout-fsm run`: tasks in, traces out, a summary at the end."""

from pathlib import Path
from typing import Annotated

import trio
from attrs import evolve
from cyclopts import Parameter

from rollout_fsm.cli.command import Command
from rollout_fsm.cli.config_file import read_settings, settings_to_toml
from rollout_fsm.cli.faults import UsageError
from rollout_fsm.cli.loading import current_folder_importable
from rollout_fsm.cli.logs import logging_to_terminal
from rollout_fsm.cli.preparing import Prepared, prepare
from rollout_fsm.cli.reporting import report
from rollout_fsm.cli.running import run_prepared
from rollout_fsm.cli.screen import Screen
from rollout_fsm.cli.settings import Settings, faults, flag, over

__all__ = ["run"]


def run(
    tasks: Annotated[str | None, Parameter(metavar="TASKS.jsonl")] = None,
    /,
    *,
    settings: Annotated[Settings | None, Parameter(name="*")] = None,
    config: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    verbose: Annotated[int, Parameter(name=("--verbose", "-v"), count=True, show_default=False)] = 0,
) -> Command:
    """Run tasks, each as one rollout or several, and write their traces.

    Without TASKS.jsonl the built-in example runs, offline. Exit codes: 0 the run went through (failed rollouts are
    data), 1 with --fail-on-error if any was not ok, 2 usage, 3 something could not be written, 130 and 143 interrupted.
    `rollout-fsm resume DIR` goes on with a run that was interrupted or cut off.

    Parameters
    ----------
    tasks
        A task on each line, a JSON object whose columns are the fields of the class that --task names.
    config
        A TOML file with the same settings; flags win over it.
    dry_run
        Print the settled settings and the number of rollouts, and run nothing.
    verbose
        Log more on standard error; twice for everything.
    """
    said = evolve(settings or Settings(), tasks=tasks)

    def command(screen: Screen) -> int:
        if wrong := [f"{flag(path)}: {what}" for path, what in faults(said)]:
            raise UsageError(*wrong)
        settled = over(said, read_settings(config)) if config is not None else said
        with current_folder_importable(), logging_to_terminal(verbose):
            prepared = prepare(settled or said)
            if dry_run:
                screen.write(f"# {_amount(prepared)}\n{settings_to_toml(prepared.settings)}")
                return 0
            return report(prepared, trio.run(run_prepared, prepared, screen), screen)

    return command


def _amount(prepared: Prepared) -> str:
    tasks, each, total = len(prepared.tasks), prepared.rollouts_per_task, prepared.total
    return f"{tasks} task{'s'[: tasks != 1]} × {each} = {total} rollout{'s'[: total != 1]}"

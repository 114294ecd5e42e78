"""The command line, `rollout-fsm`. Each command is a module, imported when it is asked for; nothing imports the
command line.

Whatever the user got wrong is one clear line on standard error and exit code 2. A traceback is a bug of this package.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments, else with the process's own; returns the exit code."""
    from rollout_fsm.cli.app import run_app

    return run_app(sys.argv[1:] if arguments is None else arguments)

"""What a command of the command line is: its flags are parsed to something that can be done on a screen."""

from collections.abc import Callable
from typing import TypeAlias

from rollout_fsm.cli.screen import Screen

__all__ = ["Command"]

Command: TypeAlias = Callable[[Screen], int]
"""Does what was asked for and returns the exit code. Raises `UsageError` for what cannot be done."""

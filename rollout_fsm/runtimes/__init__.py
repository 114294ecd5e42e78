"""Implementations of the `Runtime` contract. The isolated ones, `bubblewrap` and `docker`, are packages of their own:
who runs none does not import them.
"""

from rollout_fsm.runtimes.local import LocalRuntime
from rollout_fsm.runtimes.output import HeadTail

__all__ = ["HeadTail", "LocalRuntime"]

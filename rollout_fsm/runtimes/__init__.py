"""Implementations of the `Runtime` contract."""

from rollout_fsm.runtimes.local import LocalRuntime
from rollout_fsm.runtimes.output import HeadTail

__all__ = ["HeadTail", "LocalRuntime"]

"""Implementations of the `Runtime` contract."""

from rollout_fsm.runtimes.bubblewrap import BoxLimits, BubblewrapRuntime
from rollout_fsm.runtimes.docker import DockerRuntime
from rollout_fsm.runtimes.local import LocalRuntime
from rollout_fsm.runtimes.output import HeadTail

__all__ = ["BoxLimits", "BubblewrapRuntime", "DockerRuntime", "HeadTail", "LocalRuntime"]

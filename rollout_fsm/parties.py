"""Who has a part in a rollout: whom it can wait for, in the words of an ending's cause."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from rollout_fsm.errors import (
    HarnessError,
    InterceptionError,
    ProviderError,
    RolloutError,
    SandboxError,
    TaskError,
    ToolsetError,
)
from rollout_fsm.machine.endings import BOUNDARIES, Cause

Party: TypeAlias = Cause | Literal["engine"]
"""Whom a rollout can wait for."""

PARTIES: Mapping[type[RolloutError], Party] = {
    kind: BOUNDARIES[kind.__name__]
    for kind in (HarnessError, InterceptionError, ProviderError, SandboxError, TaskError, ToolsetError)
}
"""Who is behind each boundary."""

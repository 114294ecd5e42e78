"""Who has a part in a rollout: whom it can wait for, and who can be the cause of its end."""

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

Party: TypeAlias = Literal["caller", "engine", "harness", "interception", "provider", "sandbox", "task", "toolset"]
"""Whom a rollout can wait for; the words are those of an ending's cause."""

PARTIES: Mapping[type[RolloutError], Party] = {
    HarnessError: "harness",
    InterceptionError: "interception",
    ProviderError: "provider",
    SandboxError: "sandbox",
    TaskError: "task",
    ToolsetError: "toolset",
}
"""Who is behind each boundary."""

"""Harnesses that are ready to use: a chat loop in this process, and any program that speaks to an OpenAI endpoint.

Each is imported when it is first asked for.
"""

from typing import TYPE_CHECKING

from rollout_fsm.lazy_names import lazy_names

if TYPE_CHECKING:
    from rollout_fsm.harnesses.chat import ChatHarness
    from rollout_fsm.harnesses.program import ProgramHarness

__all__ = ["ChatHarness", "ProgramHarness"]

if not TYPE_CHECKING:  # a type checker would take any name for one of these
    __getattr__, __dir__ = lazy_names(
        __name__, {"ChatHarness": "rollout_fsm.harnesses.chat", "ProgramHarness": "rollout_fsm.harnesses.program"}
    )

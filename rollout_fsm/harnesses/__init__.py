"""Harnesses that are ready to use: a chat loop in this process, and any program that speaks to an OpenAI endpoint."""

from rollout_fsm.harnesses.chat import ChatHarness
from rollout_fsm.harnesses.program import ProgramHarness

__all__ = ["ChatHarness", "ProgramHarness"]

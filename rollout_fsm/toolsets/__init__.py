"""Tool servers: how a rollout's tools are served, and those that are somebody else's."""

from rollout_fsm.toolsets.remote import HttpToolset
from rollout_fsm.toolsets.shared import SharedToolset
from rollout_fsm.toolsets.stdio import StdioToolset

__all__ = ["HttpToolset", "SharedToolset", "StdioToolset"]

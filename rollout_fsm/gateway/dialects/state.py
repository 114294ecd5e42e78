"""Whose the provider's state of a reply is: reasoning that only its maker can read, and what the maker did on its own.

A reply keeps it as it came, and hands it back to the API that it came from. The type of an item tells which that is.
"""

from collections.abc import Iterator, Mapping

from rollout_fsm.messages import JSON, AssistantMessage

ANTHROPIC = frozenset({"thinking", "redacted_thinking", "server_tool_use", "container_upload", "fallback"})
RESPONSES = frozenset({"reasoning", "program", "program_output", "additional_tools"})


def owner(item: Mapping[str, JSON]) -> str:
    """The dialect that an item of state belongs to."""
    kind = str(item.get("type", ""))
    if kind == "compaction":  # both have it, sealed by one and readable by the other
        return "responses" if "encrypted_content" in item else "messages"
    if kind in ANTHROPIC or kind.endswith("_tool_result") or kind.startswith("mcp_tool_"):
        return "messages"
    if kind in RESPONSES or kind.endswith(("_call", "_call_output")) or kind.startswith(("mcp_", "tool_search_")):
        return "responses"
    return "chat"


def state_for(dialect: str, message: AssistantMessage) -> Iterator[dict[str, JSON]]:
    """The items that a dialect can hand back to its provider."""
    return (dict(item) for item in message.provider_state or () if owner(item) == dialect)

"""Tools of somebody else's server, passed on: what it lists is listed, and what it answers is the answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from rollout_fsm.messages import JSON
from rollout_fsm.tool_client import ToolClient
from rollout_fsm.toolset import RolloutContext

if TYPE_CHECKING:
    import mcp_types


@frozen(eq=False)
class Bridge:
    """A source of tools: a connection to their server. A call that is cancelled here is cancelled there."""

    _client: ToolClient

    async def list_tools(self) -> Sequence["mcp_types.Tool"]:
        """What the server offers now."""
        return await self._client.list_tools()

    async def call_tool(
        self, name: str, arguments: dict[str, JSON], context: RolloutContext
    ) -> "mcp_types.CallToolResult":
        """Have the server answer."""
        return await self._client.call_tool(name, arguments)

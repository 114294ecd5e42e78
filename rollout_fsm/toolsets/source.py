"""What is behind a tool server: tools that are listed and called, wherever they are. The server in front of them is the
same for all."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from rollout_fsm.messages import JSON
from rollout_fsm.toolset import RolloutContext, Toolset

if TYPE_CHECKING:
    import mcp_types


class ToolSource(Protocol):
    """Tools that may be called on behalf of a rollout. What is raised is told to the model."""

    async def list_tools(self) -> Sequence["mcp_types.Tool"]:
        """What a model is shown."""
        ...

    async def call_tool(
        self, name: str, arguments: dict[str, JSON], context: RolloutContext
    ) -> "mcp_types.CallToolResult":
        """Call one, for this rollout."""
        ...


class SourcedToolset(Toolset, ABC):
    """A toolset whose tools are not its methods."""

    @abstractmethod
    def source(self, context: RolloutContext | None) -> AbstractAsyncContextManager[ToolSource]:
        """Its tools, for as long as this is entered. `context` is that of its rollout, None where many share it."""

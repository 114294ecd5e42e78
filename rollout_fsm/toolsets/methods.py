"""The `@tool` methods of a toolset as what is behind a tool server."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import mcp_types
from attrs import frozen

from rollout_fsm.foreign import manager
from rollout_fsm.function_tool import ArgumentsError, FunctionTool, as_text
from rollout_fsm.machine.exact import suggestion
from rollout_fsm.messages import JSON
from rollout_fsm.strict_json import parse_json
from rollout_fsm.toolset import RolloutContext, Toolset, available, tools_of
from rollout_fsm.toolsets.source import ToolSource

_CONTENT = (
    mcp_types.TextContent,
    mcp_types.ImageContent,
    mcp_types.AudioContent,
    mcp_types.ResourceLink,
    mcp_types.EmbeddedResource,
)


@asynccontextmanager
async def methods_of(toolset: Toolset) -> AsyncIterator[ToolSource]:
    """The tools of a toolset, which is itself entered where it is an async context manager."""
    tools = tools_of(toolset)
    async with AsyncExitStack() as stack:
        if isinstance(toolset, AbstractAsyncContextManager):
            await stack.enter_async_context(manager(toolset))
        yield _Methods(tools)


@frozen(eq=False)
class _Methods:
    _tools: Mapping[str, FunctionTool]

    async def list_tools(self) -> Sequence[mcp_types.Tool]:
        return [
            mcp_types.Tool(
                name=found.name, description=found.tool.description or None, input_schema=dict(found.tool.parameters)
            )
            for found in self._tools.values()
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, JSON], context: RolloutContext
    ) -> mcp_types.CallToolResult:
        if name not in self._tools:
            raise ArgumentsError(f"there is no tool {name!r}{suggestion(name, self._tools)}")
        return result_of(await self._tools[name].run(arguments, available(context)))


def result_of(value: object) -> mcp_types.CallToolResult:
    """What a tool returned, as a result: MCP's own objects as they are, an object also as structured content."""
    if isinstance(value, mcp_types.CallToolResult):
        return value
    if isinstance(value, _CONTENT):
        return mcp_types.CallToolResult(content=[value])
    if isinstance(value, list | tuple) and value and all(isinstance(item, _CONTENT) for item in value):
        return mcp_types.CallToolResult(content=list(value))
    text = as_text(value)
    return mcp_types.CallToolResult(content=[content_of(text)], structured_content=_structured(value, text))


def content_of(text: str) -> mcp_types.TextContent:
    """A text as content. What is no text in it, a lone surrogate, becomes `?`."""
    return mcp_types.TextContent(text=text.encode(errors="replace").decode())


def _structured(value: object, text: str) -> JSON:
    """An object as JSON has it; None for what is none, or not exactly."""
    if not isinstance(value, dict):
        return None
    try:
        return parse_json(text)
    except ValueError:
        return None

"""An MCP server in front of a source of tools, over streamable HTTP.

Each call is a task of its own, in the server's nursery: whoever waits for it is told in time, also where a tool does
not let itself be cancelled, and the server's end waits for all of them. A client that cancels or hangs up cancels its
call, and so does the server's end.
"""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import Context, copy_context
from typing import Any

import mcp_types
import trio
from attrs import define, field, frozen
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from rollout_fsm.attempt import attempt
from rollout_fsm.errors import leaves, text
from rollout_fsm.function_tool import told
from rollout_fsm.messages import JSON
from rollout_fsm.runtime import Route
from rollout_fsm.strict_json import MAX_DEPTH, parse_json
from rollout_fsm.toolset import RolloutContext
from rollout_fsm.toolsets.http import ToolHttp
from rollout_fsm.toolsets.methods import content_of
from rollout_fsm.toolsets.source import ToolSource

logging.getLogger("mcp").addHandler(logging.NullHandler())  # a client that hangs up is an error to it

MAX_BODY = 64 * 2**20
"""Bytes that one call may have."""


@asynccontextmanager
async def served(
    http: ToolHttp,
    entering: AbstractAsyncContextManager[ToolSource],
    context: RolloutContext,
    *,
    name: str,
    timeout: float,
) -> AsyncIterator[Route]:
    """Serve tools to one rollout for a block, under a URL that is told to nobody else.

    `timeout`: seconds that a call may take.
    """
    async with entering as source, trio.open_nursery() as running:
        calls = _Calls(running, timeout, _Tools(source, context, copy_context()))
        server = Server(
            name, on_list_tools=calls.list_tools, on_call_tool=calls.call_tool, get_tool_input_schema=_unchecked
        )
        sessions = StreamableHTTPSessionManager(server, session_idle_timeout=None, max_request_body_size=MAX_BODY)
        with http.mounted(sessions.handle_request) as route, calls.until_forgotten():
            async with sessions.run():
                yield route
        running.cancel_scope.cancel()


def _unchecked(tool: str) -> Mapping[str, Any] | None:
    """No arguments are carried in headers, so there is no schema that they are to be held against."""


@frozen(eq=False)
class _Tools:
    """Of one rollout."""

    source: ToolSource
    context: RolloutContext
    variables: Context
    """The rollout's context variables, for its tools: a request comes in a task of the HTTP server's."""


@define(eq=False)
class _Calls:
    _running: trio.Nursery
    _timeout: float
    _tools: _Tools | None
    """None once it is over: the protocol package's server is kept by a cycle, and must not keep the rollout."""

    @contextmanager
    def until_forgotten(self) -> Iterator[None]:
        """A block after which the tools, and their rollout, are let go of."""
        try:
            yield
        finally:
            self._tools = None

    async def list_tools(
        self, _: ServerRequestContext[Any], params: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=list(await self._present.source.list_tools()))

    async def call_tool(
        self, _: ServerRequestContext[Any], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        call, tools = _Call(), self._present
        tools.variables.run(self._running.start_soon, _run, call, tools, params.name, params.arguments or {})
        try:
            with trio.move_on_after(self._timeout):
                await call.ended.wait()
        finally:
            call.scope.cancel()
        if call.result is not None:
            return call.result
        return error_of(f"Error: {params.name} did not answer within {self._timeout:g} s and was cancelled")

    @property
    def _present(self) -> _Tools:
        if self._tools is None:
            raise RuntimeError("the tool server has ended")
        return self._tools


@define(eq=False)
class _Call:
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    ended: trio.Event = field(factory=trio.Event)
    result: mcp_types.CallToolResult | None = None


async def _run(call: _Call, tools: _Tools, name: str, arguments: dict[str, JSON]) -> None:
    with call.scope:
        came = await attempt(_result, tools, name, arguments)
    error = came.error
    try:
        if error is None:
            call.result = came.value
        elif any(isinstance(leaf, KeyboardInterrupt | SystemExit) for leaf in leaves(error)):
            raise error  # an interrupt is the engine's
        else:
            call.result = error_of(told(next(leaves(error), error)))
    finally:
        del came, error  # a frame that keeps an exception which it raises is kept by it
        call.ended.set()


async def _result(tools: _Tools, name: str, arguments: dict[str, JSON]) -> mcp_types.CallToolResult:
    """What a tool answers; an error where no JSON can carry that, which would be one of the protocol's later."""
    result = await tools.source.call_tool(name, arguments, tools.context)
    try:
        sent = result.model_dump_json(by_alias=True, exclude_none=True, warnings="error")
        parse_json(sent, max_depth=MAX_DEPTH + 1)
    except Exception as error:  # noqa: BLE001  (a tool's own objects may raise anything)
        return error_of(f"Error: the result of {name} cannot be sent: {text(error)}")
    return result


def error_of(said: str) -> mcp_types.CallToolResult:
    """What a model is told of a call that failed."""
    return mcp_types.CallToolResult(content=[content_of(said)], is_error=True)

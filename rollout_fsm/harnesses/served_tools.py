"""The tools of a rollout's tool servers, for a harness in this process: one connection to each, kept open between
segments.

A server that does not answer when it is asked for its tools is a failure of the tool server; later it is the model's to
deal with, as a tool that fails is.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import trio
from attrs import define, frozen

from rollout_fsm.attempt import attempt
from rollout_fsm.errors import ToolsetError, leaves, text
from rollout_fsm.function_tool import parsed
from rollout_fsm.harness import Exchange
from rollout_fsm.held_open import HeldOpen
from rollout_fsm.messages import Tool, ToolCall
from rollout_fsm.tool_client import ToolClient, http_tool_client, text_of

if TYPE_CHECKING:
    import mcp_types

LONGEST = 64
"""Characters that the name of a tool may have, for the models' providers."""
_SPELLED_OTHERWISE = re.compile(r"[^A-Za-z0-9_-]")


@frozen(kw_only=True, eq=False)
class _ServedTool:
    server: str
    connection: HeldOpen[ToolClient]
    tool: "mcp_types.Tool"


@define(eq=False)
class ServedTools:
    """The tools of all tool servers of one rollout."""

    _connections: Sequence[HeldOpen[ToolClient]]
    _timeout: float
    _by_name: Mapping[str, _ServedTool]

    @classmethod
    async def open(cls, exchange: Exchange, *, taken: Collection[str], timeout: float) -> "ServedTools":
        """Connect to the tool servers of an exchange. `taken`: names that tools of the harness's own have.

        Raises `ToolsetError` naming one that cannot be asked for its tools; what was connected is then closed (L8).
        """
        connections: list[HeldOpen[ToolClient]] = []
        served: list[_ServedTool] = []
        try:
            for server, url in exchange.local_tool_urls.items():
                connections.append(await _connected(exchange, server, url))
                served += await _listed(connections[-1], server, url)
            return cls(connections, timeout, _by_name(served, taken))
        except BaseException:
            await _close(connections)
            raise

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the model is shown of them."""
        return tuple(
            Tool(name=name, description=served.tool.description or "", parameters=served.tool.input_schema)
            for name, served in self._by_name.items()
        )

    @property
    def names(self) -> Collection[str]:
        """What the model calls them by."""
        return self._by_name.keys()

    async def call(self, call: ToolCall) -> str:
        """Have a server answer a call, and return the result as the model reads it.

        Raises `ArgumentsError` for arguments that are no JSON object, `TimeoutError` for a server that does not answer
        in time, and what keeps it from being asked.
        """
        served = self._by_name[call.name]
        arguments = parsed(call.name, call.arguments)
        with trio.move_on_after(self._timeout) as bound:
            result = await served.connection.value.call_tool(served.tool.name, arguments)
        if bound.cancelled_caught:
            raise TimeoutError(f"tool server {served.server!r} did not answer within {self._timeout:g} s")
        return text_of(result)

    async def close(self) -> None:
        """Close the connections, the newest first, each whatever became of the others."""
        error = await _close(self._connections)
        try:
            if error is not None:
                raise error
        finally:
            del error  # a frame that keeps an exception which it raises is kept by it


async def _connected(exchange: Exchange, server: str, url: str) -> HeldOpen[ToolClient]:
    try:
        return await exchange.hold(http_tool_client(url), name=f"the connection to tool server {server!r}")
    except Exception as error:  # noqa: BLE001  (as the cause it would show the URL)
        raise _unreachable(server, url, error) from None


async def _listed(connection: HeldOpen[ToolClient], server: str, url: str) -> list[_ServedTool]:
    try:
        tools = await connection.value.list_tools()
    except Exception as error:  # noqa: BLE001  (as the cause it would show the URL)
        raise _unreachable(server, url, error) from None
    return [_ServedTool(server=server, connection=connection, tool=tool) for tool in tools]


def _unreachable(server: str, url: str, error: Exception) -> ToolsetError:
    """What is raised for a server that could not be asked; its URL, which is a secret, is not shown."""
    why = "; ".join(text(leaf) for leaf in leaves(error)).replace(url, "its URL")
    return ToolsetError(f"tool server {server!r} could not be asked for its tools: {why}")


async def _close(connections: Sequence[HeldOpen[ToolClient]]) -> BaseException | None:
    """Close all; returns the first error. Where this is cancelled, they are given up instead of said good-bye to."""
    alive = [connection for connection in reversed(connections) if not connection.ended]
    ends = [await attempt(connection.leave) for connection in alive]
    return next((end.error for end in ends if end.error is not None), None)


def _by_name(served: Sequence[_ServedTool], taken: Collection[str]) -> dict[str, _ServedTool]:
    """All tools by the names that the model is shown: `server__tool` for one whose own name another has, too."""
    uses = Counter([*taken, *(one.tool.name for one in served)])
    named: dict[str, _ServedTool] = {}
    for one in served:
        name = one.tool.name if uses[one.tool.name] == 1 else f"{one.server}__{one.tool.name}"
        name = _SPELLED_OTHERWISE.sub("_", name)[:LONGEST]
        if name in named or name in taken:
            raise ToolsetError(
                f"tool server {one.server!r} has a second tool that a model would have to call {name!r}; give the tool "
                f"or the server another name"
            )
        named[name] = one
    return named

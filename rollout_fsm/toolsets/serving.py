"""The tool servers of one engine: what is behind them, and what is held open for them.

The first of them opens the HTTP server for all. The packages that serve take a second to import, so that is done when
they are needed, and in a thread.
"""

import math
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from attrs import define, frozen

from rollout_fsm.hosting import Hosted, Hosting
from rollout_fsm.importing import imported
from rollout_fsm.runtime import Route
from rollout_fsm.toolset import RolloutContext, Toolset
from rollout_fsm.toolsets.shared import SharedToolset
from rollout_fsm.toolsets.source import SourcedToolset, ToolSource


@frozen
class ToolServer:
    """A tool server that runs, for one rollout."""

    _hosted: Hosted[Route]

    @property
    def url(self) -> Route:
        """Where it is; nobody else is told."""
        return self._hosted.value

    async def stop(self) -> None:
        """Stop it; a running call is cancelled. Raises what it crashed with, if it did."""
        await self._hosted.leave()


@define(eq=False)
class ToolServers:
    """Serves the tools of an engine's rollouts."""

    _hosting: Hosting

    async def serve(self, toolset: Toolset, context: RolloutContext) -> ToolServer:
        """Serve a toolset's tools to one rollout. Raises what starting it raised; a cancellation undoes it (L8)."""
        name = f"tool server {toolset.name!r}"
        await imported("rollout_fsm.toolsets.mcp_server")
        from rollout_fsm.toolsets.http import open_http
        from rollout_fsm.toolsets.mcp_server import served

        http = await self._hosting.share(self, open_http, name="the HTTP server of the tool servers")
        entering, timeout = await self._behind(toolset, context)
        serving = served(http, entering, context, name=toolset.name, timeout=timeout)
        return ToolServer(await self._hosting.enter(serving, name=name))

    async def _behind(
        self, toolset: Toolset, context: RolloutContext
    ) -> tuple[AbstractAsyncContextManager[ToolSource], float]:
        """What is behind the server, to be entered with it, and the bound of one call."""
        if not isinstance(toolset, SharedToolset):
            return _source(toolset, context), _bound(toolset)
        name = f"shared tool server {toolset.name!r}"
        source = await self._hosting.share(toolset, partial(_source, toolset.shared, None), name=name)
        return nullcontext(source), _bound(toolset.shared)


def _bound(toolset: Toolset) -> float:
    bound = math.inf if toolset.tool_timeout is None else toolset.tool_timeout
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not bound > 0:
        raise TypeError(f"tool_timeout of {type(toolset).__name__} is {bound!r}; it is a number of seconds, or None")
    return bound


def _source(toolset: Toolset, context: RolloutContext | None) -> AbstractAsyncContextManager[ToolSource]:
    if isinstance(toolset, SourcedToolset):
        return toolset.source(context)
    from rollout_fsm.toolsets.methods import methods_of

    return methods_of(toolset)

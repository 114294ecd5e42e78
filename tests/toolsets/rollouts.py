"""What the tests of tool servers share: a rollout's context, tool servers without a rollout, and clients."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from rollout_fsm import LocalRuntime, Request, Response, RolloutContext, ScriptedModel, Task, Toolset, Trace
from rollout_fsm.hosting import Hosting
from rollout_fsm.tool_client import ToolClient, http_tool_client, text_of
from rollout_fsm.toolsets.serving import ToolServer, ToolServers
from rollout_fsm.trace import TaskInfo
from tests.harnesses.runs import calling


def context(id: str = "t") -> RolloutContext:
    """That of a rollout which nobody runs."""
    trace = Trace(id=id, task=TaskInfo(type="Task"))
    return RolloutContext(task=Task(prompt="x"), trace=trace, runtime=LocalRuntime(id))


class Servers:
    """The tool servers of an engine that has nothing else."""

    def __init__(self, hosting: Hosting) -> None:
        self._servers = ToolServers(hosting)

    async def serve(self, toolset: Toolset, rollout: RolloutContext | None = None) -> ToolServer:
        """Serve to a rollout."""
        return await self._servers.serve(toolset, rollout or context())


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    """Tool servers for a block, all ended with it."""
    async with trio.open_nursery() as nursery:
        hosting = Hosting(nursery)
        try:
            yield Servers(hosting)
        finally:
            with trio.CancelScope(shield=True):
                await hosting.end()


@asynccontextmanager
async def served(toolset: Toolset, rollout: RolloutContext | None = None) -> AsyncIterator[ToolClient]:
    """A client of a toolset that is served to one rollout."""
    async with servers() as engine:
        server = await engine.serve(toolset, rollout)
        async with http_tool_client(server.url) as client:
            yield client


async def said(client: ToolClient, name: str, /, **arguments: object) -> str:
    """What a tool answers, an error marked as one."""
    result = await client.call_tool(name, json.loads(json.dumps(arguments)))
    return f"failed: {text_of(result)}" if result.is_error else text_of(result)


def model(*calls: tuple[str, dict[str, object]]) -> ScriptedModel:
    """Calls tools, all at once, and then says what they answered, one line each."""

    def reply(request: Request) -> str | Response:
        results = [message.text for message in request.messages if message.role == "tool"]
        if results or not calls:
            return "\n".join(results)
        return calling(*((name, json.dumps(arguments)) for name, arguments in calls))

    return ScriptedModel(reply)

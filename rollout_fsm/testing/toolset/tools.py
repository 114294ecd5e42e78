"""What an MCP client finds: the tools, and what their calls come to."""

from typing import TYPE_CHECKING

import trio

from rollout_fsm.engine import open_engine
from rollout_fsm.harnesses.chat import ChatHarness
from rollout_fsm.task import Task
from rollout_fsm.testing.contract import check
from rollout_fsm.testing.expecting import expect, raised_by
from rollout_fsm.testing.party import KitModel, calling, words
from rollout_fsm.testing.toolset.base import ToolsetChecks, called, settled
from rollout_fsm.tool_client import text_of

if TYPE_CHECKING:
    import mcp_types

__all__ = ["ToolChecks"]

AT_ONCE = 4
"""How many calls are made at once."""


class ToolChecks(ToolsetChecks):
    """Listing and calling."""

    @check
    async def test_a_tool_server_has_a_name(self) -> None:
        """`name` is what the server is called in `Exchange.tool_urls`, in errors and warnings (L51)."""
        name = self.make().name
        expect(isinstance(name, str) and name, f"name is {name!r}", "let `name` be a text")

    @check
    async def test_start_returns_the_url_of_a_server(self) -> None:
        """`start` serves the tools over streamable HTTP, and returns the URL (L5)."""
        async with self.served() as served:
            expect(
                served.url.startswith(("http://", "https://")), f"start() returned {served.url!r}", "return an http URL"
            )

    @check
    async def test_the_tools_are_listed(self) -> None:
        """A client is told of tools, each with a name of its own and a JSON schema of its arguments."""
        async with self.served() as served, served.client() as client:
            tools = await client.list_tools()
        names = [each.name for each in tools]
        expect(names, "no tool is listed", "list at least one")
        expect(len(set(names)) == len(names), f"the tools are named {names!r}", "give each tool a name of its own")
        for each in tools:
            schema = each.input_schema
            expect(
                schema.get("type") == "object",
                f"the schema of {each.name} is {schema!r}",
                "give a JSON schema of an object, which has the arguments as its properties",
            )

    @check
    async def test_a_tool_is_called(self) -> None:
        """A call comes to its result."""
        async with self.served() as served, served.client() as client:
            self._is_result(await called(client, self.works))

    @check
    async def test_many_calls_are_answered_at_once(self) -> None:
        """A reply of a model may have many calls, which go on side by side."""

        async def one() -> None:
            self._is_result(await called(client, self.works))

        async with self.served() as served, served.client() as client, trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(one)

    @check
    async def test_a_tool_that_fails_is_an_error_result(self) -> None:
        """What a tool raises is told to the model, and is no failure of the rollout; the server goes on (L42)."""
        if self.fails is None:
            self.skip("fails is not declared: it names a call in which the tool fails")
        async with self.served() as served, served.client() as client:
            came = await called(client, self.fails)
            expect(came.is_error, f"{self.fails!r} came to {text_of(came)!r}", "return a result with is_error=True")
            expect(text_of(came).strip(), "the error result has no text", "say in it what went wrong")
            self._is_result(await called(client, self.works))

    @check
    async def test_a_tool_that_is_not_there_harms_no_other(self) -> None:
        """A model may call what is not there, with whatever arguments: it is told, and the server goes on."""
        async with self.served() as served, served.client() as client:
            try:
                came = await client.call_tool("kit_no_such_tool", {"kit": [1, None]})
            except Exception as error:  # noqa: BLE001  (an error of the protocol's is an answer, too)
                told = bool(str(error))
            else:
                told = came.is_error is True
            expect(told, "a call of a tool that is not there came to a result", "answer with an error")
            self._is_result(await called(client, self.works))

    @check
    async def test_a_call_that_is_cancelled_harms_no_other(self) -> None:
        """A cancellation reaches a running tool, and the server goes on (L70)."""
        if self.waits is None:
            self.skip("waits is not declared: it names a call that does not end by itself")
        ended = list[Exception | None]()

        async def wait() -> None:
            assert self.waits is not None
            ended.append(await raised_by(called(client, self.waits)))

        async with self.served() as served, served.client() as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await settled()
                nursery.cancel_scope.cancel()
            expect(not ended, f"{self.waits!r} ended by itself", "declare in `waits` a call that waits")
            self._is_result(await called(client, self.works))

    @check
    async def test_a_model_uses_the_tools(self) -> None:
        """In a rollout the model is shown the tools, and its calls are run (L5)."""
        model = KitModel(calling(*self.works, lambda _: "done"))
        settings = {**self.settings(), "harness": ChatHarness(), "model": model}
        async with open_engine() as engine:
            trace = await engine.run(Task(prompt="Use the tool."), **settings)
        expect(
            trace.ok,
            f"the rollout failed: {[f'{each.type}: {each.message}' for each in trace.errors]}",
            "serve the tools",
        )
        offered, heard = [each.name for each in trace.tools], words(model.heard[-1])
        expect(self.works[0] in offered, f"the model was shown the tools {offered!r}", f"offer {self.works[0]!r}")
        expect(self.result in heard, f"the model heard {heard!r}", f"let the result have {self.result!r} in it")

    def _is_result(self, came: "mcp_types.CallToolResult") -> None:
        text = text_of(came)
        expect(
            not came.is_error, f"{self.works!r} came to an error: {text}", "let the call in `works` come to a result"
        )
        expect(self.result in text, f"{self.works!r} came to {text!r}", f"let the result have {self.result!r} in it")

"""Tool servers that are somebody else's and reached over HTTP: the engine calls them for the rollout."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types
import pytest
import trio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from rollout_fsm import HttpToolset, ToolsetError
from rollout_fsm.tool_client import http_tool_client
from rollout_fsm.toolsets.http import open_http
from tests.toolsets.rollouts import said, served, servers

pytestmark = pytest.mark.real_time


class Elsewhere:
    """A server of somebody else's, which says what it is asked and with what headers."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.cancelled = trio.Event()
        self.begun = trio.Event()
        self.pages = 1

    async def list_tools(self, _: Any, params: mcp_types.PaginatedRequestParams | None) -> mcp_types.ListToolsResult:
        page = int((params.cursor if params is not None else None) or 0)
        shown = mcp_types.Tool(name=f"tool{page}", input_schema={"type": "object"}, title="A tool")
        return mcp_types.ListToolsResult(tools=[shown], next_cursor=str(page + 1) if page + 1 < self.pages else None)

    async def call_tool(self, _: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        if params.name == "wait":
            self.begun.set()
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled.set()
        text = mcp_types.TextContent(text=f"{params.name} {params.arguments}")
        return mcp_types.CallToolResult(
            content=[text], structured_content={"given": params.arguments}, is_error=params.name == "fail"
        )

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await self.sessions.handle_request(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server: Server[Any] = Server("elsewhere", on_list_tools=self.list_tools, on_call_tool=self.call_tool)
        self.sessions = StreamableHTTPSessionManager(server)
        async with open_http() as http, self.sessions.run():
            with http.mounted(self.answer) as url:
                yield url


async def test_calls_and_results_are_passed_on_with_the_headers_that_the_client_is_not_given() -> None:
    elsewhere = Elsewhere()
    async with elsewhere.running() as url, served(HttpToolset(url, headers={"x-key": "secret"})) as client:
        (listed,) = await client.list_tools()
        assert (listed.name, listed.title) == ("tool0", "A tool")
        result = await client.call_tool("echo", {"text": "hi"})
        assert (result.structured_content, result.is_error) == ({"given": {"text": "hi"}}, False)
        assert await said(client, "fail") == "failed: fail {}"
        assert {headers.get("x-key") for headers in elsewhere.headers} == {"secret"}


async def test_all_pages_of_tools_are_listed_and_one_that_never_ends_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollout_fsm.tool_client.PAGES", 3)
    elsewhere = Elsewhere()
    async with elsewhere.running() as url, http_tool_client(url) as client:
        elsewhere.pages = 3
        assert [listed.name for listed in await client.list_tools()] == ["tool0", "tool1", "tool2"]
        elsewhere.pages = 4
        with pytest.raises(RuntimeError, match="more than 3 pages of tools"):
            await client.list_tools()


async def test_a_cancellation_is_passed_on() -> None:
    elsewhere = Elsewhere()
    async with elsewhere.running() as url, served(HttpToolset(url)) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "wait", {})
                await elsewhere.begun.wait()
                scope.cancel()
        await elsewhere.cancelled.wait()
        assert await said(client, "echo") == "echo {}"


async def test_a_server_that_does_not_answer_is_bounded() -> None:
    elsewhere = Elsewhere()
    async with elsewhere.running() as url, served(HttpToolset(url, tool_timeout=0.05)) as client:
        assert await said(client, "wait") == "failed: Error: wait did not answer within 0.05 s and was cancelled"
        await elsewhere.cancelled.wait()


async def test_a_server_that_goes_away_is_an_error_for_the_model_and_no_crash() -> None:
    gone = trio.Event()
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[tuple[str, trio.CancelScope]]) -> None:
            with trio.CancelScope() as life:
                async with Elsewhere().running() as url:
                    task_status.started((url, life))
                    await trio.sleep_forever()
            gone.set()

        url, life = await nursery.start(run)
        async with served(HttpToolset(url)) as client:
            assert await said(client, "echo") == "echo {}"
            life.cancel()
            await gone.wait()
            for _ in range(2):
                assert (await said(client, "echo")).startswith("failed: Error: MCPError: ")


async def test_a_server_that_is_not_there_fails_the_start() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    async with servers() as engine:
        with pytest.raises(ToolsetError, match=r"tool server 'here' cannot be reached: .*ConnectError"):
            await engine.serve(HttpToolset(f"http://127.0.0.1:{port}/mcp", name="here"))


@pytest.mark.parametrize("url", ["", "localhost:80/mcp", "ftp://x/mcp", "http:///mcp"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the URL of a tool server begins with http:// or https:// and a host"):
        HttpToolset(url)


def test_its_name_is_the_hosts_and_its_headers_are_not_shown() -> None:
    toolset = HttpToolset("https://tools.example:8443/mcp?key=k", headers={"x-key": "secret"})
    assert (toolset.name, repr(toolset)) == ("tools.example", "<HttpToolset tools.example>")
    assert HttpToolset("http://x/", name="other").name == "other"

"""Tools that are served to a rollout: a real client and the real server over HTTP."""

import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import mcp_types
import pytest
import trio
from mcp import Client
from mcp.shared.exceptions import MCPError

from rollout_fsm import Toolset, tool
from rollout_fsm.errors import leaves
from rollout_fsm.tool_client import http_tool_client
from tests.toolsets.rollouts import context, said, served, servers

pytestmark = pytest.mark.real_time


class Shop(Toolset):
    @tool
    def price(self, item: str, pieces: int = 1) -> float:
        """What something costs."""
        return 2.5 * pieces

    @tool
    async def buy(self, item: str, state: dict[str, Any]) -> str:
        await trio.lowlevel.checkpoint()
        state.setdefault("bought", []).append(item)
        return "bought"

    @tool
    def fail(self) -> str:
        raise ZeroDivisionError("by nothing")

    @tool
    async def fail_together(self) -> str:
        async with trio.open_nursery():
            raise KeyError("a child's")


async def test_a_client_is_shown_the_tools() -> None:
    async with served(Shop()) as client:
        price = {listed.name: listed for listed in await client.list_tools()}["price"]
        assert (price.description, price.input_schema["properties"]) == (
            "What something costs.",
            {"item": {"type": "string"}, "pieces": {"type": "integer", "default": 1}},
        )


async def test_tools_answer_and_what_goes_wrong_is_an_answer() -> None:
    rollout = context()
    async with served(Shop(), rollout) as client:
        assert await said(client, "price", item="tea", pieces=2) == "5.0"
        assert await said(client, "buy", item="tea") == "bought"
        assert rollout.trace.state == {"bought": ["tea"]}
        assert await said(client, "fail") == "failed: Error: ZeroDivisionError: by nothing"
        assert await said(client, "fail_together") == 'failed: Error: KeyError: "a child\'s"'
        assert await said(client, "price", itme="tea") == (
            "failed: Error: the arguments of price do not fit: itme: there is no such argument; did you mean 'item'?; "
            "item: it is required"
        )
        assert await said(client, "prize") == "failed: Error: there is no tool 'prize'; did you mean 'price'?"


IMAGE = mcp_types.ImageContent(data="aGk=", mime_type="image/png")
TEXT = mcp_types.TextContent(text="hi")


class Returning(Toolset):
    def __init__(self, value: object) -> None:
        self.value = value

    @tool
    def get(self) -> object:
        return self.value


@pytest.mark.parametrize(
    ("value", "content", "structured"),
    [
        ("text", ["text"], None),
        (None, ["null"], None),
        ({"a": [1, "ü"]}, ['{"a": [1, "ü"]}'], {"a": [1, "ü"]}),
        ({"a": float("nan")}, ['{"a": NaN}'], None),
        ({"a": {1}}, ["{'a': {1}}"], None),
        ([1, 2], ["[1, 2]"], None),
        ([], ["[]"], None),
        ("half a character \ud800", ["half a character ?"], None),
        (IMAGE, [IMAGE], None),
        ((TEXT, IMAGE), ["hi", IMAGE], None),
        (mcp_types.CallToolResult(content=[TEXT], structured_content={"b": 1}), ["hi"], {"b": 1}),
    ],
)
async def test_what_a_tool_returns_is_its_result(value: object, content: list[object], structured: object) -> None:
    async with served(Returning(value)) as client:
        result = await client.call_tool("get", {})
    assert [item.text if item.type == "text" else item for item in result.content] == content
    assert (result.structured_content, result.is_error) == (structured, False)


def nested(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


SURROGATE = mcp_types.TextContent(text="half a character \ud800")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": "\ud800"}, "surrogates not allowed"),
        (SURROGATE, "surrogates not allowed"),
        ([TEXT, SURROGATE], "surrogates not allowed"),
        (mcp_types.CallToolResult(content=[SURROGATE]), "surrogates not allowed"),
        (mcp_types.CallToolResult(content=[], structured_content={"a": object()}), "unknown type: <class 'object'>"),
        (mcp_types.CallToolResult(content=[], structured_content=nested(102)), "nested too deeply"),
        (mcp_types.CallToolResult(content=[], structured_content=nested(10_000)), "depth exceeded"),
        (mcp_types.CallToolResult.model_construct(content=[object()]), "unknown type: <class 'object'>"),
        (mcp_types.TextContent.model_construct(text=3), "Expected `str`"),
    ],
)
async def test_a_result_that_cannot_be_sent_is_an_error_for_the_model(value: object, why: str) -> None:
    async with served(Returning(value)) as client:
        for _ in range(2):
            answer = await said(client, "get")
            assert answer.startswith("failed: Error: the result of get cannot be sent: ")
            assert why in answer


async def test_a_result_that_is_as_deep_as_json_is_read_arrives() -> None:
    for value in (nested(101), mcp_types.CallToolResult(content=[], structured_content=nested(101))):
        async with served(Returning(value)) as client:
            result = await client.call_tool("get", {})
            assert (result.structured_content, result.is_error) == (nested(101), False)


class UnsayableError(Exception):
    """Its message cannot be shown, and says so by what nobody expects."""

    def __init__(self, raised: type[BaseException]) -> None:
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised


@pytest.mark.parametrize("raised", [ValueError, BaseException, GeneratorExit, KeyboardInterrupt, SystemExit])
async def test_an_error_whose_message_raises_is_told_by_its_type(raised: type[BaseException]) -> None:
    class Raising(Toolset):
        @tool
        def get(self) -> None:
            raise UnsayableError(raised)

        @tool
        def quick(self) -> str:
            return "at once"

    async with served(Raising()) as client:
        assert await said(client, "get") == "failed: Error: UnsayableError"
        assert await said(client, "quick") == "at once"


class Waiting(Toolset):
    """Says when a call begins and what becomes of it."""

    def __init__(self, tool_timeout: float | None = None) -> None:
        self.tool_timeout = tool_timeout
        self.begun, self.cancelled, self.release = trio.Event(), trio.Event(), trio.Event()

    @tool
    async def wait(self) -> str:
        self.begun.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.cancelled.set()
            raise

    @tool
    async def ignore(self) -> str:
        self.begun.set()
        with trio.CancelScope(shield=True):
            await self.release.wait()
        return "too late"

    @tool
    def quick(self) -> str:
        return "at once"


async def test_a_tool_that_hangs_is_cancelled_and_the_model_is_told() -> None:
    waiting = Waiting(tool_timeout=0.05)
    async with served(waiting) as client:
        assert await said(client, "wait") == "failed: Error: wait did not answer within 0.05 s and was cancelled"
        assert waiting.cancelled.is_set()
        assert await said(client, "quick") == "at once"


async def test_the_model_is_told_in_time_of_a_tool_that_does_not_let_itself_be_cancelled() -> None:
    waiting = Waiting(tool_timeout=0.05)
    async with served(waiting) as client:
        assert await said(client, "ignore") == "failed: Error: ignore did not answer within 0.05 s and was cancelled"
        waiting.release.set()


Dial = Callable[[str], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def modern(url: str) -> AsyncIterator[Client]:
    async with http_tool_client(url) as client:
        yield client._client


def with_a_handshake(url: str) -> AbstractAsyncContextManager[Client]:
    return Client(url, cache=None, mode="legacy")


def dialled(test: Any) -> Any:
    """With either generation of the protocol. The client's own reader of streams leaves generators open."""
    ignored = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
    return ignored(pytest.mark.parametrize("dial", [modern, with_a_handshake])(test))


@dialled
async def test_a_cancellation_of_the_client_reaches_the_running_tool_and_no_other(
    dial: Dial,
) -> None:
    waiting, other = Waiting(), Waiting()
    async with servers() as engine:
        server, second = await engine.serve(waiting), await engine.serve(other)
        async with dial(server.url) as client, dial(second.url) as its_client, trio.open_nursery() as nursery:
            nursery.start_soon(its_client.call_tool, "wait", {})
            await other.begun.wait()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as calling:
                    calling.start_soon(client.call_tool, "wait", {})
                    await waiting.begun.wait()
                    scope.cancel()
            await waiting.cancelled.wait()
            assert not other.cancelled.is_set()
            assert (await client.call_tool("quick", {})).content[0].text == "at once"  # type: ignore[union-attr]
            nursery.cancel_scope.cancel()
    gc.collect()


@dialled
async def test_stopping_the_server_cancels_the_running_tool_and_ends_its_client_call(dial: Dial) -> None:
    waiting = Waiting()

    async def call(client: Client) -> None:
        with pytest.raises(MCPError):
            await client.call_tool("wait", {})
        await server.stop()  # once more

    async with servers() as engine:
        server = await engine.serve(waiting)
        async with dial(server.url) as client, trio.open_nursery() as nursery:
            nursery.start_soon(call, client)
            await waiting.begun.wait()
            await server.stop()
            assert waiting.cancelled.is_set()
    gc.collect()


async def test_a_stopped_server_is_not_there_any_more() -> None:
    async with servers() as engine:
        server = await engine.serve(Shop())
        _, _, port, *path = server.url.split("/")
        assert await status(port, f"/{'/'.join(path)}") != 404
        await server.stop()
        assert await status(port, f"/{'/'.join(path)}") == 404


async def test_the_servers_of_two_rollouts_are_one_port_and_two_secrets() -> None:
    async with servers() as engine:
        urls = [(await engine.serve(Shop(), context(str(place)))).url for place in range(2)]
        port, paths = urls[0].split("/")[2], [url.split("/")[3:] for url in urls]
        assert [url.split("/")[2] for url in urls] == [port, port]
        assert [len(path[0]) for path in paths] == [43, 43]
        assert paths[0][0] != paths[1][0]
        for wrong in ("x" * 43, paths[0][0][:-1], f"{paths[0][0]}x", "", paths[0][0].swapcase(), "%00", "%ff"):
            assert await status(port, f"/{wrong}/mcp") == 404
        assert await status(port, f"/{paths[0][0]}") == 404
        assert await status(port, f"/{paths[0][0]}/mcp") != 404


async def status(port: str, path: str) -> int:
    host, _, number = port.partition(":")
    stream = await trio.open_tcp_stream(host, int(number))
    async with stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        answer = b""
        while chunk := await stream.receive_some():
            answer += chunk
    return int(answer.split()[1])


async def test_a_client_that_does_not_read_its_answer_holds_up_neither_the_server_nor_the_engine() -> None:
    class Long(Toolset):
        @tool
        def get(self) -> str:
            return "x" * 50_000_000

    async with servers() as engine:
        streams = []
        for stops in (True, False):
            server = await engine.serve(Long())
            _, _, host, secret, _ = server.url.split("/")
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get"}}).encode()
            head = (
                f"POST /{secret}/mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                f"accept: application/json, text/event-stream\r\ncontent-length: {len(INITIALIZE)}\r\n\r\n"
            )
            assert body
            stream = await trio.open_tcp_stream(host.split(":")[0], int(host.split(":")[1]))
            await stream.send_all(head.encode() + INITIALIZE)
            session = await header(stream, b"mcp-session-id")
            await stream.send_all(
                f"POST /{secret}/mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                f"mcp-session-id: {session}\r\naccept: application/json, text/event-stream\r\n"
                f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            assert await stream.receive_some(1000)  # it has begun to answer
            streams.append(stream)
            if stops:
                await server.stop()
    for stream in streams:
        await stream.aclose()


INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }
).encode()


async def header(stream: trio.SocketStream, name: bytes) -> str:
    """A header of the next answer, which is read to its end."""
    answer = b""
    while b"\r\n0\r\n\r\n" not in answer:
        answer += await stream.receive_some()
    (line,) = [line for line in answer.split(b"\r\n") if line.lower().startswith(name)]
    return line.partition(b": ")[2].decode()


async def test_a_toolset_that_holds_something_open_is_entered_before_and_left_after() -> None:
    log: list[str] = []

    class Library(Toolset, AbstractAsyncContextManager[None]):
        async def __aenter__(self) -> None:
            log.append("opened")

        async def __aexit__(self, *error: object) -> None:
            log.append("closed")

        @tool
        def read(self) -> str:
            log.append("read")
            return "a page"

    async with servers() as engine:
        server = await engine.serve(Library())
        async with http_tool_client(server.url) as client:
            assert await said(client, "read") == "a page"
        await server.stop()
        assert log == ["opened", "read", "closed"]


async def test_a_tool_sees_the_context_variables_of_its_rollout() -> None:
    who: ContextVar[str] = ContextVar("who")

    class Asking(Toolset):
        @tool
        def ask(self) -> str:
            return who.get()

    urls: list[str] = []
    async with servers() as engine:

        async def serve(name: str) -> None:
            who.set(name)
            urls.append((await engine.serve(Asking())).url)

        for name in ("one", "two"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, name)
        answers = []
        for url in urls:
            async with http_tool_client(url) as client:
                answers.append(await said(client, "ask"))
        assert answers == ["one", "two"]


@pytest.mark.parametrize("bound", [0, -1, True, "5"])
async def test_a_bound_that_is_no_number_of_seconds_is_refused_when_the_server_starts(bound: Any) -> None:
    async with servers() as engine:
        with pytest.raises(TypeError, match="tool_timeout of Waiting is"):
            await engine.serve(Waiting(tool_timeout=bound))


async def test_many_calls_at_once_are_answered_each_with_its_own() -> None:
    async with served(Shop()) as client:
        answers: dict[int, str] = {}

        async def ask(pieces: int) -> None:
            answers[pieces] = await said(client, "price", item="x", pieces=pieces)

        async with trio.open_nursery() as nursery:
            for pieces in range(20):
                nursery.start_soon(ask, pieces)
        assert answers == {pieces: str(2.5 * pieces) for pieces in range(20)}


async def test_connections_that_are_made_in_a_box_reach_the_tools_of_its_rollout_and_no_others() -> None:
    async with servers() as engine, trio.open_nursery() as nursery:
        routes = [(await engine.serve(Shop(), context(str(place)))).url for place in range(2)]
        assert routes[0].answer is not None
        inside = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        nursery.start_soon(trio.serve_listeners, routes[0].answer, [inside])
        box = f"127.0.0.1:{inside.socket.getsockname()[1]}"
        own, other = (route.partition("://")[2].partition("/")[2] for route in routes)
        async with http_tool_client(f"http://{box}/{own}") as client:
            assert await said(client, "price", item="tea") == "2.5"
        assert await status(box, f"/{other}") == 404
        nursery.cancel_scope.cancel()


async def test_an_exit_in_a_tool_ends_the_engine() -> None:
    class Exiting(Toolset):
        @tool
        def exit(self) -> None:
            raise SystemExit(4)

    async def engine_with_an_exit() -> None:
        async with servers() as engine, http_tool_client((await engine.serve(Exiting())).url) as client:
            await client.call_tool("exit", {})

    with pytest.raises(BaseExceptionGroup) as raised:
        await engine_with_an_exit()
    assert [leaf.code for leaf in leaves(raised.value) if isinstance(leaf, SystemExit)] == [4]

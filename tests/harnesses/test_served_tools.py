"""The chat loop with the tools of the rollout's tool servers, over real connections."""

import mcp_types
import pytest
import trio

from rollout_fsm import (
    ChatHarness,
    LocalRuntime,
    Request,
    Response,
    RolloutContext,
    ScriptedModel,
    Task,
    Toolset,
    open_engine,
    tool,
)
from rollout_fsm.tool_client import text_of
from tests.harnesses.runs import Ending, Listener, calling, ending, failure, run, said
from tests.toolsets.rollouts import model
from tests.toolsets.test_in_rollouts import HTTP, held

pytestmark = pytest.mark.real_time

COMPLETED: Ending = (True, "agent_completed", [], [])


class Shop(Toolset):
    @tool
    def price(self, item: str) -> str:
        """What something costs."""
        return f"{len(item)} coins"

    @tool
    async def add(self, left: int, right: int) -> str:
        return f"the shop's {left + right}"


class Market(Shop):
    name = "the market!"  # type: ignore[assignment]


def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


async def test_functions_and_served_tools_are_offered_side_by_side_and_answer_in_order() -> None:
    listener = Listener(
        [calling(("price", '{"item": "tea"}'), ("double", '{"number": 4}'), ("price", '{"item": "coffee"}')), "done"]
    )

    def double(number: int) -> int:
        return 2 * number

    trace = await run(ChatHarness([double]), listener.model, Task(prompt="go"), tools=[Shop])
    assert ending(trace) == COMPLETED
    assert said(trace)[2:] == [("tool", "3 coins"), ("tool", "8"), ("tool", "6 coins"), ("assistant", "done")]
    offered = {shown.name: shown for shown in listener.requests[0].tools}
    assert list(offered) == ["double", "add", "price"]
    assert offered["price"].description == "What something costs."
    assert offered["price"].parameters["properties"] == {"item": {"type": "string"}}


async def test_tools_of_one_name_are_called_by_their_servers_name_too() -> None:
    listener = Listener(
        [
            calling(
                ("add", '{"left": 1, "right": 2}'),
                ("Shop__add", '{"left": 1, "right": 2}'),
                ("the_market___price", '{"item": "a"}'),
                ("price", "{}"),
            ),
            "done",
        ]
    )
    trace = await run(ChatHarness([add]), listener.model, Task(prompt="go"), tools=[Shop, Market])
    assert [shown.name for shown in listener.requests[0].tools] == [
        "add",
        "Shop__add",
        "Shop__price",
        "the_market___add",
        "the_market___price",
    ]
    assert [text for role, text in said(trace) if role == "tool"] == [
        "3",
        "the shop's 3",
        "1 coins",
        "Error: there is no tool 'price'; did you mean 'Shop__price'?",
    ]


async def test_two_tools_that_a_model_could_not_tell_apart_are_refused() -> None:
    class First(Shop):
        name = "a.b"  # type: ignore[assignment]

    class Second(Shop):
        name = "a-b"  # type: ignore[assignment]

    class Third(Shop):
        name = "a b"  # type: ignore[assignment]

    async with open_engine() as engine:
        trace = await engine.run(Task(prompt="go"), harness=ChatHarness(), model=model(), tools=[First, Second, Third])
        assert held(engine) == HTTP
    assert failure(trace) == (
        "ToolsetError",
        "tool server 'a b' has a second tool that a model would have to call 'a_b__add'; give the tool or the server "
        "another name",
    )


async def test_arguments_that_are_no_object_are_told_to_the_model() -> None:
    trace = await run(
        ChatHarness(),
        ScriptedModel([calling(("price", "{item"), ("price", "[]")), "done"]),
        Task(prompt="x"),
        tools=[Shop],
    )
    results = [text for role, text in said(trace) if role == "tool"]
    assert results[0].startswith("Error: the arguments of price are not JSON: ")
    assert results[1] == "Error: the arguments of price are a JSON list; give an object"


async def test_calls_go_on_side_by_side_and_at_most_as_many_as_allowed() -> None:
    class Counting(Toolset):
        def __init__(self) -> None:
            self.running = self.most = 0
            self.two = trio.Event()

        @tool
        async def meet(self) -> str:
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running == 2:
                self.two.set()
            await self.two.wait()
            self.running -= 1
            return "met"

    counting = Counting()
    trace = await run(
        ChatHarness(max_parallel=2), model(*[("meet", {})] * 4), Task(prompt="x"), tools=[lambda: counting]
    )
    assert (ending(trace), trace.last_reply, counting.most) == (COMPLETED, "\n".join(["met"] * 4), 2)


async def test_one_connection_lasts_from_segment_to_segment_and_is_closed_with_the_session() -> None:
    async with (
        open_engine() as engine,
        engine.interaction(
            Task(prompt=None),
            harness=ChatHarness(),
            model=ScriptedModel(priced),
            tools=[Shop],
        ) as interaction,
    ):
        connections = []
        for words in ("tea", "coffee"):
            segment = await interaction.turn(words)
            assert segment.last_reply == f"{len(words)} coins"
            assert engine._register is not None
            connections.append(
                [one for one in engine._register.services.hosting._open if one.name.startswith("the connection")]
            )
        assert len(connections[0]) == 1
        assert connections[0] == connections[1]
    assert held(engine) == []


def priced(request: Request) -> str | Response:
    last = request.messages[-1]
    return last.text if last.role == "tool" else calling(("price", f'{{"item": "{last.text}"}}'))


class Elsewhere(Toolset):
    """Returns a URL where nobody is."""

    async def start(self, context: RolloutContext) -> str:
        listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
        port = listener.socket.getsockname()[1]
        await listener.aclose()
        return f"http://127.0.0.1:{port}/secret-path/mcp"


async def test_a_server_that_cannot_be_asked_for_its_tools_fails_the_rollout_and_nothing_is_left() -> None:
    async with open_engine() as engine:
        trace = await engine.run(Task(prompt="x"), harness=ChatHarness(), model=model(), tools=[Shop, Elsewhere])
        assert held(engine) == HTTP
    type, message = failure(trace)
    assert type == "ToolsetError"
    assert message.startswith("tool server 'Elsewhere' could not be asked for its tools: MCPError: ConnectError")
    assert "secret-path" not in message


class Dying(Shop):
    """Is stopped by its own tool, as a server that dies is."""

    name = "dying"  # type: ignore[assignment]

    def __init__(self, engine: "list[object]") -> None:
        self.engine = engine

    @tool
    async def die(self) -> str:
        hosting = self.engine[0]._register.services.hosting  # type: ignore[attr-defined]
        (server,) = [one for one in hosting._open if one.name == "tool server 'dying'"]
        server._life.cancel()
        await trio.sleep_forever()


async def test_a_server_that_dies_is_an_error_for_the_model() -> None:
    engines: list[object] = []
    async with open_engine() as engine:
        engines.append(engine)
        trace = await engine.run(
            Task(prompt="x"),
            harness=ChatHarness(max_parallel=1),
            model=model(("die", {}), ("price", {"item": "tea"})),
            tools=[lambda: Dying(engines)],
        )
    first, second = trace.last_reply.splitlines()
    assert first.startswith("Error: MCPError: ")
    assert second.startswith("Error: MCPError: ")
    assert ending(trace)[:3] == COMPLETED[:3]


async def test_a_server_that_does_not_answer_in_time_is_an_error_for_the_model() -> None:
    cancelled = trio.Event()

    class Slow(Toolset):
        tool_timeout = None

        @tool
        async def ponder(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                cancelled.set()

    trace = await run(ChatHarness(tool_timeout=0.1), model(("ponder", {})), Task(prompt="x"), tools=[Slow])
    assert trace.last_reply == "Error: TimeoutError: tool server 'Slow' did not answer within 0.1 s"
    assert cancelled.is_set()


@pytest.mark.parametrize("bound", [0, -1.0, float("nan")])
def test_a_bound_that_is_none_is_refused(bound: float) -> None:
    with pytest.raises(ValueError, match="tool_timeout must be a number of seconds above 0"):
        ChatHarness(tool_timeout=bound)


async def test_in_this_process_a_server_is_reached_where_it_is_and_not_where_programs_reach_it() -> None:
    class Mapping(LocalRuntime):
        def host_url(self, url: str) -> str:
            return "http://host.invalid/mcp"

    async with open_engine() as engine:
        trace = await engine.run(
            Task(prompt="x"),
            harness=ChatHarness(),
            model=model(("price", {"item": "tea"})),
            tools=[Shop],
            runtime=Mapping,
        )
    assert (ending(trace), trace.last_reply) == (COMPLETED, "3 coins")


def test_a_result_is_read_as_text_and_what_is_none_is_named() -> None:
    result = mcp_types.CallToolResult(
        content=[
            mcp_types.TextContent(text="look:"),
            mcp_types.ImageContent(data="aGk=", mime_type="image/png"),
            mcp_types.ResourceLink(name="notes", uri="file:///notes.txt"),
            mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(uri="file:///a", text="kept")),
            mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents(uri="file:///b", blob="aGk=")),
        ]
    )
    assert text_of(result).splitlines() == [
        "look:",
        "[image image/png, left out: a result is text]",
        "[resource file:///notes.txt]",
        "kept",
        "[resource file:///b, left out: a result is text]",
    ]

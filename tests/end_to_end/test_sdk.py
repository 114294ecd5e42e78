"""The official SDKs, unmodified, are harnesses: in a box, through the gateway, in every API, with a scripted model or a
real upstream behind it (L15, L16, L20, L24, L33, L81)."""

from collections import Counter
from pathlib import Path

import pytest
import trio
from attrs import frozen

from rollout_fsm import (
    AssistantMessage,
    Harness,
    Model,
    OpenAIModel,
    ProgramHarness,
    Response,
    RolloutLimits,
    ScriptedModel,
    Task,
    ToolCall,
    Trace,
    intercept,
    open_engine,
)
from rollout_fsm.models import AnthropicModel
from tests.end_to_end.agents import Telling
from tests.end_to_end.endings import COMPLETED, Ending, ending
from tests.end_to_end.relay import relaying
from tests.end_to_end.upstream import all_gone, clever, complaint
from tests.models.bodies import event_bytes, message_events, response_events
from tests.models.misbehaving import Behaviour, Heard, Server, answers, chunk, completion, hangs, in_turn, serving

pytestmark = pytest.mark.real_time

AGENT = Path(__file__).with_name("sdk_agent.py")
APIS = ("chat", "responses", "messages")


def sdk(api: str, what: str, *more: str) -> Harness:
    argv = ["{python}", "-I", "agent.py", api, what, "{prompt}", *more]
    return ProgramHarness(argv, files={"agent.py": AGENT}, name="sdk")


def native(api: str, server: Server) -> Model:
    """The client of an upstream that speaks this API."""
    if api == "messages":
        return AnthropicModel("m", base_url=server.base_url)
    return OpenAIModel("m", base_url=server.base_url, speaks=("responses",) if api == "responses" else ("chat",))


# One agent, three APIs


def adder() -> Model:
    """Asks for a tool call, then says what it came to."""
    call = AssistantMessage("Adding.", tool_calls=[ToolCall(id="call_1", name="add", arguments='{"a":2,"b":2}')])
    return ScriptedModel([Response(message=call, finish_reason="tool_calls"), "It is 4."], name="m")


def said(trace: Trace) -> list[object]:
    return [(node.message, node.parent) for node in trace.nodes]


def tokens(trace: Trace) -> list[object]:
    return [call.usage and (call.usage.input_tokens, call.usage.completion_tokens) for call in trace.calls]


async def test_one_agent_solves_a_task_through_each_api_and_its_traces_have_the_same_nodes() -> None:
    """With a model in this process and with an upstream of the same API; plain and streamed."""
    traces: dict[str, Trace] = {}
    async with (
        serving(clever(adder(), dialect="chat")) as chat,
        serving(clever(adder(), dialect="responses")) as responses,
        serving(clever(adder(), dialect="messages")) as messages,
        open_engine() as engine,
        trio.open_nursery() as nursery,
    ):

        async def solve(label: str, api: str, what: str, model: Model) -> None:
            task = Telling(prompt="2 + 2?", system_prompt="Use the tool.")
            traces[label] = await engine.run(task, harness=sdk(api, what), model=model)

        for api, server in zip(APIS, (chat, responses, messages), strict=True):
            scripted, upstream = ("solve streamed", "solve") if api == "responses" else ("solve", "solve streamed")
            nursery.start_soon(solve, f"{api}, scripted", api, scripted, adder())
            nursery.start_soon(solve, f"{api}, its own upstream", api, upstream, native(api, server))
    first = traces["chat, scripted"]
    assert [node.message.role for node in first.nodes] == ["system", "user", "assistant", "tool", "assistant"]
    for label, trace in traces.items():
        assert ending(trace) == COMPLETED, label
        assert trace.info["told"] == "It is 4.", label
        assert said(trace) == said(first), label
        assert trace.tools == first.tools, label
        assert tokens(trace) == tokens(first), label


# Errors, limits, hanging up


UNABLE = {
    "chat": (429, complaint("slow down")),
    "responses": (500, complaint("oops")),
    "messages": (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
}
"""What each upstream says when it cannot answer now."""


def half_a_stream(api: str) -> bytes:
    """The beginning of a stream that says "fo"."""
    match api:
        case "chat":
            events = [event_bytes({**chunk("fo"), "type": ""}, named=False)]
        case "responses":
            events = [event_bytes(event) for event in response_events("fo")[:5]]
        case _:
            events = [event_bytes(event) for event in message_events("fo")[:4]]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)


def breaks(data: bytes) -> Behaviour:
    """Sends these bytes and closes the connection."""

    async def behave(stream: trio.SocketStream, heard: Heard) -> None:
        await stream.send_all(data)
        await stream.aclose()

    return behave


@pytest.mark.parametrize("api", APIS)
async def test_an_agent_of_the_sdk_lives_through_errors_hang_ups_and_refusals(api: str) -> None:
    status, body = UNABLE[api]
    well = clever(ScriptedModel(lambda _: "yes"), dialect=api)
    count = [answers({"input_tokens": 5})] if api == "messages" else []
    upstream = in_turn(
        *(answers(body, status=status), well),
        *(hangs(half_a_stream(api)), well),
        *(breaks(half_a_stream(api)), well),
        *count,
    )
    async with serving(upstream) as server:
        async with open_engine() as engine:
            model, limits = native(api, server), RolloutLimits(max_turns=3)
            trace = await engine.run(Telling(prompt="go"), harness=sdk(api, "troubled"), model=model, limits=limits)
        await all_gone(server)
    told = trace.info["told"]
    assert isinstance(told, list)
    retried, left, after, broken, again, *counted, refused, refused_stream = told

    # The SDK tries again what the upstream could not answer, and that is one turn.
    assert (retried, after, again) == ("yes", "yes", "yes")
    assert next(call.error for call in trace.calls if call.error is not None).status_code == status
    assert ending(trace) == Ending(True, "max_turns")
    assert trace.num_turns == 3

    # A stream flows while the model answers; one that is left is cancelled, and commits nothing.
    assert left == "fo"
    assert "go" not in [node.message.text for node in trace.nodes]

    # A stream that breaks off is an error of the SDK's after the pieces that came, and commits nothing.
    assert broken[0] == "fo"  # type: ignore[index,call-overload]
    assert "the connection broke" in str(broken[1])  # type: ignore[index,call-overload]
    assert "breaks off" not in [node.message.text for node in trace.nodes]

    # A count is no turn. A refused turn is a bad request, plain and streamed, that is not tried again.
    assert counted == ([5] if api == "messages" else [])
    assert refused == ["BadRequestError", 400, "max_turns", "rollout stopped: max_turns"]
    assert refused_stream == [refused]
    assert len(server.heard) == 6 + len(counted)


@frozen
class Held:
    """Where a turn waits once its model has answered."""

    answered: trio.Event
    go_on: trio.Event


def holding(held: Held) -> Task:
    """A task whose interceptor holds each reply."""

    class Holding(Telling):
        @intercept
        async def hold(self, response: Response) -> None:
            held.answered.set()
            await held.go_on.wait()

    return Holding(prompt="go")


@pytest.mark.parametrize("commits_first", [True, False], ids=["committed", "still running"])
async def test_a_reply_that_was_lost_on_its_way_is_what_the_sdk_gets_when_it_tries_again(commits_first: bool) -> None:
    held = Held(trio.Event(), trio.Event())
    async with open_engine() as engine, relaying(engine.url) as relay, trio.open_nursery() as nursery:
        traces: list[Trace] = []

        async def rollout() -> None:
            harness, model = sdk("chat", "once", relay.url), ScriptedModel(lambda _: "yes")
            traces.append(await engine.run(holding(held), harness=harness, model=model))

        nursery.start_soon(rollout)
        await held.answered.wait()
        asked = relay.requests
        relay.cut()
        if commits_first:
            held.go_on.set()
        await relay.until_asked(asked + 1)
        held.go_on.set()
    (trace,) = traces
    assert ending(trace) == COMPLETED
    assert trace.info["told"] == "yes"
    assert len(trace.calls) == trace.num_turns == 1


async def test_the_sdk_in_many_threads_never_passes_a_limit() -> None:
    """The upstream answers none of them before all that may be in flight are, so that they really are at once."""
    allowed, together = 5, trio.Event()

    async def hold(stream: trio.SocketStream, request: Heard) -> None:
        if len(server.heard) == allowed:
            together.set()
        await together.wait()
        await answers(completion("yes"))(stream, request)

    async with serving(hold) as server:
        async with open_engine() as engine:
            model, limits = native("chat", server), RolloutLimits(max_turns=allowed)
            trace = await engine.run(Telling(prompt="go"), harness=sdk("chat", "parallel"), model=model, limits=limits)
        await all_gone(server)
    assert ending(trace) == Ending(True, "max_turns")
    told = trace.info["told"]
    assert isinstance(told, list)
    refusal = str(["BadRequestError", 400, "max_turns", "rollout stopped: max_turns"])
    assert Counter(map(str, told)) == {"yes": allowed, refusal: 7}
    assert len(server.heard) == len(trace.calls) == trace.num_turns == allowed
    assert len(trace.branches) == allowed

"""Answers that a model client tells while they come: in order, at the listener's pace, and what stops them."""

import json

import pytest
import trio

from rollout_fsm.errors import ProviderError
from rollout_fsm.message_json import as_messages
from rollout_fsm.messages import AssistantMessage, Delta, Request, Response, Sampling, ToolCall, ToolCallDelta, Usage
from rollout_fsm.models import OpenAIModel, ScriptedModel
from rollout_fsm.models.scripted import pieces
from tests.models.misbehaving import Heard, Server, answers, chunk, completion, floods, serving, streams

pytestmark = pytest.mark.real_time

SUM = Request(messages=as_messages("2 + 2?"))
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
USAGE: dict[str, object] = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


def model_of(server: Server) -> OpenAIModel:
    return OpenAIModel("m", base_url=server.base_url, api_key_var=None)


def part(data: object) -> bytes:
    """A chunk of the transfer that holds one event."""
    event = f"data: {json.dumps(data)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


async def test_each_piece_is_told_while_the_endpoint_still_answers() -> None:
    heard, go = trio.Event(), trio.Event()
    told: list[str] = []

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        await stream.send_all(STREAM_HEAD + part(chunk("fo")))
        await heard.wait()
        await stream.send_all(part(chunk("ur", finish="stop")) + part(USAGE))
        await stream.send_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        go.set()

    async def deliver(delta: Delta) -> None:
        await trio.lowlevel.checkpoint()
        told.append(delta.content)
        if not go.is_set():
            heard.set()

    async with serving(behave) as server, model_of(server) as model:
        response = await model.stream_response(SUM, Sampling(), deliver)
        await model.stream_response(SUM, Sampling(), deliver)
    assert response.message.text == "four"
    assert response.usage == Usage(prompt_tokens=7, completion_tokens=2)
    assert "".join(told) == "fourfour"
    assert server.heard[0].json["stream"] is True
    assert server.heard[0].json["stream_options"] == {"include_usage": True}
    assert server.connections == 1


async def test_an_endpoint_that_answers_in_one_piece_all_the_same_tells_none() -> None:
    told: list[Delta] = []

    async def deliver(delta: Delta) -> None:
        told.append(delta)

    async with serving(answers(completion())) as server:
        assert (await model_of(server).stream_response(SUM, Sampling(), deliver)).message.text == "four"
    assert told == []


@pytest.mark.parametrize("kind", [ProviderError, ValueError, KeyboardInterrupt])
async def test_what_the_listener_raises_passes_and_the_connection_is_given_up(kind: type[BaseException]) -> None:
    error = kind("no more")

    async def deliver(delta: Delta) -> None:
        raise error

    async with serving(floods(STREAM_HEAD + part(chunk("fo")))) as server, model_of(server) as model:
        with pytest.raises(kind) as caught:
            await model.stream_response(SUM, Sampling(), deliver)
        assert caught.value is error
        await server.until(lambda server: server.gone == 1)


async def test_a_listener_that_is_cancelled_midway_gives_the_connection_back() -> None:
    async def deliver(delta: Delta) -> None:
        scope.cancel()
        await trio.sleep_forever()

    async with serving(floods(STREAM_HEAD + part(chunk("fo")))) as server, model_of(server) as model:
        with trio.CancelScope() as scope:
            await model.stream_response(SUM, Sampling(), deliver)
        assert scope.cancelled_caught
        await server.until(lambda server: server.gone == 1)


async def test_a_slow_listener_holds_up_the_endpoint() -> None:
    """What it has not taken is not read: the flood does not pile up here."""
    taken = 0
    enough = trio.Event()

    async def deliver(delta: Delta) -> None:
        nonlocal taken
        taken += 1
        enough.set()
        await trio.sleep_forever()

    sent = 0

    async def behave(stream: trio.SocketStream, request: Heard) -> None:
        nonlocal sent
        await stream.send_all(STREAM_HEAD)
        piece = part(chunk("x" * 100_000))
        while True:
            await stream.send_all(piece)
            sent += len(piece)

    async with serving(behave) as server, model_of(server) as model, trio.open_nursery() as nursery:
        nursery.start_soon(model.stream_response, SUM, Sampling(), deliver)
        await enough.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert taken == 1
        assert sent < 32 * 2**20
        nursery.cancel_scope.cancel()


async def test_a_stream_that_breaks_off_has_told_what_came() -> None:
    told: list[str] = []

    async def deliver(delta: Delta) -> None:
        told.append(delta.content)

    async with serving(streams(chunk("fo"), {"error": {"message": "boom", "code": 502}})) as server:
        with pytest.raises(ProviderError, match="boom") as caught:
            await model_of(server).stream_response(SUM, Sampling(), deliver)
    assert told == ["fo"]
    assert caught.value.status_code == 502


# A scripted model


async def test_a_scripted_model_tells_its_reply_in_a_few_pieces() -> None:
    told: list[Delta] = []

    async def deliver(delta: Delta) -> None:
        told.append(delta)

    response = await ScriptedModel(["one two three"]).stream_response(SUM, Sampling(), deliver)
    assert len(told) > 1
    assert "".join(delta.content for delta in told) == response.message.text == "one two three"


def test_the_pieces_of_a_reply_say_all_of_it() -> None:
    calls = (ToolCall(id="a", name="add", arguments='{"x": 1}'), ToolCall(id="b", name="echo", arguments=""))
    message = AssistantMessage("some text", reasoning_content="a thought", tool_calls=calls)
    said = list(pieces(message))
    assert "".join(delta.content for delta in said) == "some text"
    assert "".join(delta.reasoning for delta in said) == "a thought"
    parts = [call for delta in said for call in delta.tool_calls]
    assert [(call.index, call.id, call.name) for call in parts if call.id] == [(0, "a", "add"), (1, "b", "echo")]
    assert "".join(call.arguments for call in parts if call.index == 0) == '{"x": 1}'
    assert all(isinstance(call, ToolCallDelta) for call in parts)
    assert list(pieces(AssistantMessage(None))) == []


async def test_a_scripted_model_counts_the_tokens_of_a_prompt_as_those_of_its_usage() -> None:
    model = ScriptedModel([Response(message=AssistantMessage("four"))])
    usage = (await model.respond(SUM, Sampling())).usage
    assert usage is not None
    assert await model.count_tokens(SUM) == usage.prompt_tokens

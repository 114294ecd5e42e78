"""What is written is what the official SDKs expect: their own types read it, and their own accumulators fold it."""

from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import BaseModel, TypeAdapter

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.messages import (
    AssistantMessage,
    Delta,
    Message,
    NativeEvent,
    Request,
    Response,
    Sampling,
    Tool,
    ToolCall,
    ToolCallDelta,
    Usage,
    UserMessage,
)
from tests.gateway.dialects.golden import ANSWERS
from tests.gateway.dialects.strategies import NOBODY, conversations, plain_responses, wire
from tests.gateway.dialects.typed_dicts import fault
from tests.profiles import examples

REQUEST_TYPES: dict[str, Any] = {
    "chat": openai.types.chat.completion_create_params.CompletionCreateParamsNonStreaming,
    "responses": ResponseCreateParamsNonStreaming,
    "messages": anthropic.types.message_create_params.MessageCreateParamsNonStreaming,
}
ANSWER_TYPES: dict[str, type[BaseModel]] = {
    "chat": openai.types.chat.ChatCompletion,
    "responses": openai.types.responses.Response,
    "messages": anthropic.types.Message,
}
EVENT_TYPES: dict[str, Any] = {
    "chat": openai.types.chat.ChatCompletionChunk,
    "responses": openai.types.responses.ResponseStreamEvent,
    "messages": anthropic.types.RawMessageStreamEvent,
}
ADAPTERS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in EVENT_TYPES.items()}

TOOLS = (
    Tool(name="add", description="Adds.", parameters={"type": "object", "properties": {}}),
    Tool(name="strict", parameters={"type": "object"}, strict=True),
)
CALL = ToolCall(id="c1", name="add", arguments='{"a": 1}')
SAID = Response(
    message=AssistantMessage("Let me see.", reasoning_content="hm", tool_calls=[CALL, evolve(CALL, id="c2")]),
    usage=Usage(prompt_tokens=3, completion_tokens=2),
    finish_reason="tool_calls",
    id="r_1",
)

every_dialect = pytest.mark.parametrize("name", DIALECTS)


@every_dialect
@examples(0.1)
@given(messages=conversations(), data=st.data())
def test_a_request_that_is_translated_is_one_of_the_sdks(
    name: str, messages: tuple[Message, ...], data: st.DataObject
) -> None:
    source = DIALECTS[data.draw(st.sampled_from(sorted(DIALECTS.keys() - {name})))]
    sampling = Sampling(max_tokens=5, reasoning_effort="low")
    came = source.render_request(Request(messages=messages, tools=TOOLS), model="m", sampling=sampling, stream=False)
    request = source.parse_request(wire(came))
    body = wire(DIALECTS[name].render_request(request, model="m", sampling=request.sampling, stream=False))
    assert fault(body, REQUEST_TYPES[name]) is None


@every_dialect
@examples(0.1)
@given(response=plain_responses())
def test_a_plain_answer_is_one_of_the_sdks(name: str, response: Response) -> None:
    body = wire(DIALECTS[name].render_response(response, request=NOBODY, model="m", created=1))
    ANSWER_TYPES[name].model_validate(body)


@every_dialect
@examples(0.1)
@given(response=plain_responses(), told=st.booleans())
def test_the_events_of_a_stream_are_the_sdks(name: str, response: Response, told: bool) -> None:
    for event in events(name, response, told=told):
        if event.data:
            ADAPTERS[name].validate_python(wire(event.data))


def events(name: str, response: Response, *, told: bool) -> list[NativeEvent]:
    """A stream: in pieces as a model of this process tells them, or never told before its end."""
    renderer = DIALECTS[name].renderer(NOBODY, model="m", created=1)
    message = response.message
    pieces = [Delta(reasoning=message.reasoning_content or ""), Delta(content=message.content or "")]
    for index, call in enumerate(message.tool_calls):
        pieces.append(Delta(tool_calls=(ToolCallDelta(index=index, id=call.id, name=call.name, arguments=""),)))
        pieces.append(Delta(tool_calls=(ToolCallDelta(index=index, arguments=call.arguments),)))
    written = [event for piece in pieces if told for event in renderer.delta(piece)]
    return [*written, *renderer.end(response)]


@pytest.mark.parametrize("told", [True, False])
def test_openais_fold_of_chunks_is_the_answer(told: bool) -> None:
    state = ChatCompletionStreamState()
    for event in events("chat", SAID, told=told):
        if event.data:
            state.handle_chunk(openai.types.chat.ChatCompletionChunk.model_validate(event.data))
    choice = state.get_final_completion().choices[0]
    assert choice.message.content == "Let me see."
    assert [call.function.arguments for call in choice.message.tool_calls or ()] == [CALL.arguments] * 2
    assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("told", [True, False])
def test_openais_fold_of_a_responses_stream_is_the_answer(told: bool) -> None:
    state: Any = ResponseStreamState(input_tools=[], text_format=openai.omit)
    kinds = []
    for event in events("responses", SAID, told=told):
        kinds += [each.type for each in state.handle_event(ADAPTERS["responses"].validate_python(event.data))]
    final: Any = state._completed_response
    assert final.output_text == "Let me see."
    assert [item.arguments for item in final.output if item.type == "function_call"] == [CALL.arguments] * 2
    assert kinds[-1] == "response.completed"


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("arguments", ['{"a": 1}', "", "no object", '{"a":'])
def test_anthropics_fold_of_a_stream_is_the_answer_whatever_the_model_wrote(told: bool, arguments: str) -> None:
    call = evolve(CALL, arguments=arguments)
    response = evolve(SAID, message=evolve(SAID.message, tool_calls=[call]))
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events("messages", response, told=told):
        read = ADAPTERS["messages"].validate_python(event.data)
        snapshot = accumulate_event(event=read, current_snapshot=snapshot, json_bufs=buffers)
    thinking, text, use = snapshot.content
    assert (thinking.thinking, text.text, snapshot.stop_reason) == ("hm", "Let me see.", "tool_use")
    assert (snapshot.usage.input_tokens, snapshot.usage.output_tokens) == (3, 2)
    again = DIALECTS["messages"].parse_request(
        {"messages": [{"role": "user", "content": "x"}, wire(snapshot.to_dict())]}  # as an agent sends it back
    )
    assert again.messages[1].key == response.message.key
    assert use.name == "add"


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - {"chat tools"}))  # of custom tools' calls, chunks have no type
def test_an_answer_that_was_not_streamed_is_read_as_a_stream_by_the_sdks(name: str) -> None:
    dialect = DIALECTS[name.partition(" ")[0]]
    response = dialect.parse_response(ANSWERS[name])
    for event in dialect.renderer(NOBODY, model="m", created=1).end(response):
        if event.data:
            ADAPTERS[dialect.name].validate_python(wire(event.data))


def test_a_failure_in_a_stream_has_what_the_sdks_raise_for() -> None:
    for name, dialect in DIALECTS.items():
        (event,) = dialect.renderer(NOBODY, model="m", created=1).failure("it broke", type="api_error", code="broken")
        error: Any = event.data["error"]
        assert error["message"] == "it broke"
        assert event.name == ("" if name == "chat" else "error")


def test_requests_of_users_alone_are_requests() -> None:
    for name, dialect in DIALECTS.items():
        body = dialect.render_request(
            Request(messages=[UserMessage("x")]), model="m", sampling=Sampling(), stream=False
        )
        assert fault(body, REQUEST_TYPES[name]) is None

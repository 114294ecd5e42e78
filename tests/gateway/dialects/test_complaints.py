"""What is wrong with a body is said in one line: where, what was expected, and what came."""

from typing import Any

import pytest

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.messages import NativeEvent
from tests.gateway.dialects.strategies import assembled

USER: Any = {"role": "user", "content": "hi"}
USE: Any = {"type": "tool_use", "id": "c", "name": "f"}


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("responses", [], "the request body: expected a JSON object, got []"),
        ("responses", {}, "input: expected a string, or a list with at least one item, got nothing"),
        ("responses", {"input": []}, "input: expected a string, or a list with at least one item, got []"),
        (
            "responses",
            {"input": ["hi"]},
            'input[0]: expected an item: an object with a `type`, or with `role` and `content`, got "hi"',
        ),
        (
            "responses",
            {"input": [{"role": "critic", "content": "x"}]},
            'input[0].role: expected "system", "developer", "user" or "assistant", got "critic"',
        ),
        ("responses", {"input": [{"type": 4}]}, "input[0].type: expected the kind of the item, got 4"),
        (
            "responses",
            {"input": [USER, {"type": "function_call", "call_id": "c", "arguments": "{}"}]},
            "input[1].name: expected the name of the tool, got nothing",
        ),
        (
            "responses",
            {"input": [{"type": "function_call_output", "output": "x"}]},
            "input[0].call_id: expected the id of the call that it answers, got nothing",
        ),
        (
            "responses",
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0].text: expected a string, got nothing",
        ),
        ("responses", {"input": "x", "instructions": 3}, "instructions: expected a string, got 3"),
        ("responses", {"input": "x", "max_output_tokens": "3"}, 'max_output_tokens: expected a whole number, got "3"'),
        ("responses", {"input": "x", "reasoning": {"effort": 3}}, "reasoning.effort: expected a string, got 3"),
        ("responses", {"input": "x", "tools": [{}]}, "tools[0].type: expected the kind of the tool, got nothing"),
        (
            "responses",
            {"input": "x", "previous_response_id": "resp_1"},
            "previous_response_id: this gateway keeps nothing between requests: send the whole conversation as "
            "`input`, not the id of the last response",
        ),
        ("messages", {}, "messages: expected a list with at least one message, got nothing"),
        ("messages", {"messages": []}, "messages: expected a list with at least one message, got []"),
        (
            "messages",
            {"messages": [{"role": "tool"}]},
            'messages[0].role: expected "user", "assistant" or "system", got "tool"',
        ),
        (
            "messages",
            {"messages": [{"role": "user", "content": 4}]},
            "messages[0].content: expected a string or a list of content blocks, got 4",
        ),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "messages[0].content[0].tool_use_id: expected the id of the call that it answers, got nothing",
        ),
        (
            "messages",
            {"messages": [{"role": "assistant", "content": [{**USE, "input": "x"}]}]},
            'messages[0].content[0].input: expected the arguments as an object, got "x"',
        ),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0].source: expected where the image is from, got nothing",
        ),
        ("messages", {"messages": [USER], "system": 3}, "system: expected a string or a list of content blocks, got 3"),
        ("messages", {"messages": [USER], "stop_sequences": [1]}, "stop_sequences[0]: expected a string, got 1"),
        ("messages", {"messages": [USER], "tools": [{}]}, "tools[0].name: expected the tool's name, got nothing"),
    ],
)
def test_a_malformed_request_is_refused_with_its_field_what_came_and_what_was_expected(
    name: str, body: Any, message: str
) -> None:
    with pytest.raises(DialectError) as caught:
        DIALECTS[name].parse_request(body)
    assert str(caught.value) == message
    assert caught.value.param == (None if body == [] else message.partition(":")[0])


@pytest.mark.parametrize(
    ("name", "events", "message"),
    [
        ("messages", [{"type": "content_block_stop", "index": 0}], "index: expected a block that has begun, got 0"),
        (
            "messages",
            [{"type": "content_block_start", "index": "x", "content_block": {"type": "text"}}],
            'index: expected the number of a block, got "x"',
        ),
        ("messages", [{"type": "message_start"}], "message: expected the message that begins, got nothing"),
        ("responses", [{"type": "response.completed"}], "response: expected the whole response, got nothing"),
        (
            "responses",
            [{"type": "response.failed", "response": {"error": {"message": "overloaded"}}}],
            'the response failed: {"message": "overloaded"}',
        ),
        (
            "responses",
            [{"type": "error", "code": "x", "message": "overloaded"}],
            'the stream reports an error: {"code": "x", "message": "overloaded"}',
        ),
        ("responses", [{"type": "response.output_text.delta"}], "delta: expected a piece of text, got nothing"),
        ("responses", [{}], "type: expected the kind of the event, got nothing"),
    ],
)
def test_a_malformed_event_is_refused(name: str, events: list[Any], message: str) -> None:
    with pytest.raises(DialectError) as caught:
        assembled(DIALECTS[name], [NativeEvent(dialect=name, data=event) for event in events])
    assert str(caught.value) == message


def test_events_that_nobody_knows_say_nothing_and_pass() -> None:
    for name in ("responses", "messages"):
        event = NativeEvent(dialect=name, data={"type": "something.new", "x": 1}, name="something.new")
        delta = DIALECTS[name].assembler().add(event)
        assert (delta.content, delta.reasoning, delta.tool_calls, delta.native) == ("", "", (), event)


@pytest.mark.parametrize(
    ("name", "sampling", "message"),
    [
        ("responses", {"stop": ["END"]}, "stop: the Responses API has no stop sequences"),
        ("messages", {}, "tools[0]: 'p' takes free text, and the messages API has no such tools"),
    ],
)
def test_what_an_endpoint_cannot_be_told_is_refused_before_it_is_asked(
    name: str, sampling: dict[str, Any], message: str
) -> None:
    custom: dict[str, Any] = {"type": "custom", "custom": {"name": "p"}}
    request = DIALECTS["chat"].parse_request({"messages": [USER], "tools": [custom], "stop": sampling.get("stop")})
    with pytest.raises(DialectError) as caught:
        DIALECTS[name].render_request(request, model="m", sampling=request.sampling, stream=False)
    assert str(caught.value).startswith(message)

"""The same conversation has the same messages, by their keys, in whatever dialect it is sent and answered."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.dialect import Dialect
from rollout_fsm.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    OtherPart,
    Request,
    Response,
    Sampling,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from tests.gateway.dialects.golden import REQUESTS
from tests.gateway.dialects.strategies import NAMES, NOBODY, OBJECTS, SAID, conversations, wire
from tests.profiles import examples

every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))


def keys(messages: tuple[Message, ...]) -> list[bytes]:
    return [message.key for message in messages]


@every_dialect
@examples(0.25)
@given(messages=conversations())
def test_a_conversation_that_is_written_and_read_has_the_same_messages(
    dialect: Dialect, messages: tuple[Message, ...]
) -> None:
    body = dialect.render_request(Request(messages=messages), model="m", sampling=Sampling(), stream=False)
    assert keys(dialect.parse_request(wire(body)).messages) == keys(messages)


@every_dialect
@examples(0.25)
@given(
    text=st.none() | SAID,
    calls=st.lists(st.builds(ToolCall, id=NAMES, name=NAMES, arguments=OBJECTS.map(lambda o: json.dumps(o, indent=1)))),
)
def test_an_answer_that_is_sent_back_is_the_message_that_was_committed(
    dialect: Dialect, text: str | None, calls: list[ToolCall]
) -> None:
    committed = AssistantMessage(text, tool_calls={call.id: call for call in calls}.values())
    if committed == AssistantMessage():
        return
    answer = Response(message=committed)
    body: Any = wire(dialect.render_response(answer, request=NOBODY, model="m", created=1))
    user = {"role": "user", "content": "x"}
    sent: dict[str, Any] = {
        "chat": lambda: {"messages": [user, body["choices"][0]["message"]]},
        "responses": lambda: {"input": [user, *body["output"]]},
        "messages": lambda: {"messages": [user, {"role": "assistant", "content": body["content"]}]},
    }
    assert dialect.parse_request(sent[dialect.name]()).messages[1].key == committed.key


TOLD: tuple[Message, ...] = (
    SystemMessage("be brief"),
    UserMessage((TextPart("look"), ImagePart("data:image/png;base64,Zg=="))),
    AssistantMessage("Let me see.", tool_calls=[ToolCall(id="c1", name="add", arguments='{"a":1,"b":"x"}')]),
    ToolMessage("1", tool_call_id="c1"),
    UserMessage("and now?"),
    AssistantMessage("2"),
    UserMessage("thanks"),
)

SPELLINGS: dict[str, Any] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,Zg=="}},
                ],
            },
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":"x"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "user", "content": "and now?"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "thanks"},
        ]
    },
    "responses": {
        "instructions": "be brief",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "image_url": "data:image/png;base64,Zg==", "detail": "auto"},
                ],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"b": "x", "a": 1.0}'},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {"role": "user", "content": "and now?"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "thanks"},
        ],
    },
    "messages": {
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Zg=="}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "Let me "},
                    {"type": "text", "text": "see."},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"b": "x", "a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "1"}]},
                    {"type": "text", "text": "and now?"},
                ],
            },
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "thanks"},
        ],
    },
}


@pytest.mark.parametrize("name", DIALECTS)
def test_an_agents_conversation_is_the_same_in_each_dialect(name: str) -> None:
    assert keys(DIALECTS[name].parse_request(SPELLINGS[name]).messages) == keys(TOLD)


def test_what_responses_has_beside_functions_is_read_as_calls_and_results() -> None:
    *_, user, reply, one, two, three, last, _ = DIALECTS["responses"].parse_request(REQUESTS["responses full"]).messages
    assert isinstance(user, UserMessage)
    assert user.content == (
        TextPart("look"),
        ImagePart("https://x/y.png", "low"),
        OtherPart({"type": "input_file", "file_id": "file-1"}),
    )
    assert isinstance(reply, AssistantMessage)
    assert reply.text == "Let me see."
    assert [(call.id, call.name, call.type) for call in reply.tool_calls] == [
        ("c1", "add", "function"),
        ("c2", "patch", "custom"),
        ("c3", "shell", "function"),
    ]
    assert json.loads(reply.tool_calls[2].arguments)["action"] == {"commands": ["ls"]}
    assert reply.provider_state is not None
    assert [item["id"] for item in reply.provider_state] == ["rs_1"]
    assert all(isinstance(result, ToolMessage) for result in (one, two, three))
    assert isinstance(two, ToolMessage)
    assert two.content == (TextPart("done"), ImagePart("data:image/png;base64,Zg==", "auto"))
    assert "stdout" in three.text
    assert isinstance(last, AssistantMessage)
    assert last.text == "I will not."


def test_what_the_provider_ran_in_its_own_container_is_no_call_of_the_clients() -> None:
    place = {"type": "container_reference", "container_id": "cntr_1"}
    items: list[Any] = [
        {"role": "user", "content": "x"},
        {"type": "shell_call", "id": "1", "call_id": "c", "action": {"commands": ["ls"]}, "environment": place},
        {"type": "shell_call_output", "id": "2", "call_id": "c", "output": []},
        {"type": "tool_search_call", "id": "3", "call_id": "d", "execution": "server", "arguments": {}},
        {"role": "assistant", "content": "done"},
    ]
    _, reply = DIALECTS["responses"].parse_request({"input": items}).messages
    assert isinstance(reply, AssistantMessage)
    assert (reply.text, reply.tool_calls, len(reply.provider_state or ())) == ("done", (), 3)


def test_what_messages_has_beside_text_and_calls_is_the_providers_state() -> None:
    request = DIALECTS["messages"].parse_request(REQUESTS["messages full"])
    _, _, reply, one, two, said, *_ = request.messages
    assert isinstance(reply, AssistantMessage)
    assert reply.reasoning_content == "hm"
    assert [block["type"] for block in reply.provider_state or ()] == ["thinking", "redacted_thinking"]
    assert isinstance(one, ToolMessage)
    assert isinstance(two, ToolMessage)
    assert two.content == (ImagePart("https://x/y.png"),)
    assert said == UserMessage((TextPart("and now?"),))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("responses", {"input": "x", "previous_response_id": "resp_1"}),
        ("responses", {"input": "x", "conversation": {"id": "conv_1"}}),
        ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        ("responses", {"input": [{"id": "msg_1"}]}),
        ("messages", {"messages": [], "thread": {"type": "continue", "previous_message_id": "msg_1"}}),
    ],
)
def test_what_the_provider_would_have_to_remember_is_refused_with_what_to_send(name: str, body: Any) -> None:
    with pytest.raises(ValueError, match=r"this gateway keeps no.*send"):
        DIALECTS[name].parse_request(body)

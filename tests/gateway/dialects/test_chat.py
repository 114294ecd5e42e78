"""The chat format: what is rendered is parsed back equal, what is wrong is named, and nothing else is ever raised."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.gateway.dialects.chat import (
    ChunkAssembler,
    Streaming,
    parse_message,
    parse_request,
    parse_response,
    parse_streaming,
    parse_usage,
    render_chunks,
    render_message,
    render_request,
    render_response,
    render_usage,
)
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    FinishReason,
    ImagePart,
    OtherPart,
    Request,
    Response,
    Sampling,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)


def wire(value: object) -> dict[str, JSON]:
    """The value as it is after its way over a wire."""
    return cast("dict[str, JSON]", json.loads(json.dumps(value)))


# What there is to say, as strategies

TEXT = st.text(st.characters(), max_size=40)  # lone surrogates included
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)
COUNTS = st.integers(0, 2**40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)
PARTS = st.one_of(
    st.builds(TextPart, TEXT),
    st.builds(ImagePart, TEXT, st.none() | st.sampled_from(["low", "high"])),
    st.builds(lambda extra: OtherPart({"type": "input_audio", "input_audio": extra}), OBJECTS),
)
CONTENT = TEXT | st.lists(PARTS, max_size=3).map(tuple)
CALLS = st.builds(ToolCall, id=NAMES, name=NAMES, arguments=TEXT, type=st.sampled_from(["function", "custom"]))
STATE = st.lists(OBJECTS.map(lambda fields: {"type": "reasoning.text", **fields}), max_size=2).map(
    lambda items: tuple({**item, "index": place} for place, item in enumerate(items))
)


def distinct(calls: list[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple({call.id: call for call in calls}.values())


REPLIES = st.builds(
    AssistantMessage,
    st.none() | TEXT,
    reasoning_content=st.none() | TEXT,
    tool_calls=st.lists(CALLS, max_size=3).map(distinct),
    provider_state=st.none() | STATE,
)
MESSAGES = st.one_of(
    st.builds(SystemMessage, CONTENT),
    st.builds(UserMessage, CONTENT),
    st.builds(ToolMessage, CONTENT, tool_call_id=NAMES, name=st.none() | NAMES),
    REPLIES,
)
TOOLS = st.builds(Tool, name=NAMES, description=TEXT, parameters=OBJECTS, strict=st.none() | st.booleans())
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.none() | FLOATS,
    top_p=st.none() | FLOATS,
    max_tokens=st.none() | COUNTS,
    seed=st.none() | st.integers(-(2**63), 2**63),
    stop=st.none() | st.lists(TEXT, max_size=3).map(tuple),
    reasoning_effort=st.none() | st.sampled_from(["low", "high"]),
    extra=st.dictionaries(NAMES.map(lambda name: f"x_{name}"), VALUES, max_size=3),
)
USAGES = st.builds(
    Usage,
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    cached_input_tokens=st.none() | COUNTS,
    reasoning_tokens=st.none() | COUNTS,
    cost=st.none() | FLOATS,
)
REASONS = cast("list[FinishReason | None]", ["stop", "length", "tool_calls", None])
RESPONSES = st.builds(
    Response,
    message=REPLIES,
    finish_reason=st.sampled_from(REASONS),
    usage=st.none() | USAGES,
    id=NAMES,
    model=NAMES,
)


# What is rendered is parsed back equal


@given(MESSAGES)
def test_a_message_comes_back_equal(message: SystemMessage) -> None:
    assert parse_message(wire(render_message(message))) == message


@given(
    st.lists(MESSAGES, min_size=1, max_size=4),
    st.lists(TOOLS, max_size=2),
    st.none() | NAMES,
    SAMPLINGS,
    st.sampled_from(["max_tokens", "max_completion_tokens"]),
)
def test_a_request_comes_back_equal(
    messages: list[UserMessage], tools: list[Tool], model: str | None, sampling: Sampling, limit_field: str
) -> None:
    request = Request(messages=tuple(messages), tools=tuple(tools), model=model, sampling=sampling)
    body = render_request(request, model=model, sampling=sampling, limit_field=limit_field)  # type: ignore[arg-type]
    assert parse_request(wire(body)) == request


@given(RESPONSES)
def test_a_response_comes_back_equal(response: Response) -> None:
    assert parse_response(wire(render_response(response, model=str(response.model), created=1))) == response


@given(RESPONSES)
def test_a_stream_says_what_the_whole_response_says(response: Response) -> None:
    chunks = render_chunks(response, model=str(response.model), created=1, include_usage=True)
    assert fold(map(wire, chunks)) == response


@given(USAGES)
def test_usage_comes_back_equal_and_cache_reads_are_counted_once(usage: Usage) -> None:
    body = wire(render_usage(usage))
    assert parse_usage(body) == usage
    assert body["prompt_tokens"] == usage.prompt_tokens + (usage.cached_input_tokens or 0)
    assert body["total_tokens"] == body["prompt_tokens"] + body["completion_tokens"]  # type: ignore[operator]


def fold(chunks: Iterable[Mapping[str, JSON]]) -> Response:
    assembler = ChunkAssembler()
    for chunk in chunks:
        assembler.add(chunk)
    assembler.end()
    return assembler.response()


# Nothing but a DialectError is ever raised

NONE = "no complaint"
COMPLAINT = re.compile("no complaint|expected .* got|is an error|reports an error")

WORDS = """
    role content messages tools type function name arguments id tool_calls choices message delta index error usage n
    finish_reason prompt_tokens completion_tokens prompt_tokens_details cached_tokens stop stream stream_options model
    temperature seed max_tokens image_url url text refusal reasoning reasoning_details tool_call_id custom
"""
FIELDS = st.sampled_from(WORDS.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.just(0.5)
    | st.sampled_from(
        ["user", "assistant", "tool", "system", "text", "image_url", "function", "custom", "stop", "x", ""]
    )
)
SHAPES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5), max_leaves=25
)


@given(SHAPES)
def test_a_body_of_any_shape_is_parsed_or_refused_with_its_field(body: JSON) -> None:
    for parse in (parse_request, parse_response, parse_message, parse_streaming):
        assert COMPLAINT.search(complaint(parse, body))
    assembler = ChunkAssembler()
    assert COMPLAINT.search(complaint(assembler.add, body))
    assembler.end()
    assert COMPLAINT.search(complaint(lambda _: assembler.response(), body))


@given(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool", "system"])}),
    st.dictionaries(FIELDS, SHAPES),
)
def test_a_message_of_any_shape_is_parsed_or_refused_with_its_field(
    role: dict[str, JSON], fields: dict[str, JSON]
) -> None:
    assert COMPLAINT.search(complaint(parse_message, {**fields, **role}))
    assert COMPLAINT.search(complaint(parse_request, {"messages": [{**fields, **role}]}))
    assert COMPLAINT.search(complaint(parse_response, {"choices": [{"message": {**fields, **role}}]}))
    assert COMPLAINT.search(complaint(ChunkAssembler().add, {"choices": [{"delta": fields}]}))


def complaint(parse: Callable[[dict[str, JSON]], object], body: JSON) -> str:
    try:
        parse(cast("dict[str, JSON]", body))
    except DialectError as error:
        return str(error)
    return NONE


# Requests


def hello(**more: JSON) -> dict[str, JSON]:
    return {"messages": [{"role": "user", "content": "hello"}], **more}


def test_a_developer_message_is_a_system_message() -> None:
    request = parse_request({"messages": [{"role": "developer", "content": "be brief"}]})
    assert request.messages == (SystemMessage("be brief"),)


def test_nested_tool_calls_become_flat_ones() -> None:
    call: JSON = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    message = parse_message({"role": "assistant", "content": None, "tool_calls": [call]})
    assert message == AssistantMessage(None, tool_calls=(ToolCall(id="c1", name="add", arguments='{"a":1}'),))


def test_a_reply_that_is_sent_back_in_parts_is_the_same_turn() -> None:
    plain = parse_message({"role": "assistant", "content": "yes"})
    parts = parse_message({"role": "assistant", "content": [{"type": "text", "text": "yes"}]})
    assert parts.key == plain.key


def test_a_cache_marker_does_not_make_a_text_another_text() -> None:
    marked: JSON = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    assert parse_message({"role": "user", "content": [marked]}).key == UserMessage("hi").key


def test_known_settings_are_named_and_all_others_travel_in_extra() -> None:
    body = hello(
        model="m",
        n=1,
        stream=True,
        stream_options={"include_usage": True},
        temperature=0,
        max_completion_tokens=9.0,
        stop="END",
        tool_choice="auto",
        logprobs=None,
    )
    assert parse_request(body) == Request(
        messages=(UserMessage("hello"),),
        model="m",
        sampling=Sampling(temperature=0, max_tokens=9, stop=("END",), extra={"tool_choice": "auto", "logprobs": None}),
    )
    assert parse_streaming(body) == Streaming(stream=True, include_usage=True)


def test_the_newer_name_of_the_token_limit_wins() -> None:
    assert parse_request(hello(max_tokens=5, max_completion_tokens=7)).sampling.max_tokens == 7


def test_settings_that_are_null_are_not_said() -> None:
    body = hello(temperature=None, top_p=None, max_tokens=None, seed=None, stop=None, tools=None, n=None, stream=None)
    assert parse_request(body) == Request(messages=(UserMessage("hello"),))
    assert parse_streaming(body) == Streaming()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the request body: expected a JSON object, got []"),
        ({}, "messages: expected a list with at least one message, got nothing"),
        ({"messages": []}, "messages: expected a list with at least one message, got []"),
        ({"messages": "hi"}, 'messages: expected a list with at least one message, got "hi"'),
        ({"messages": ["hi"]}, 'messages[0]: expected a message: an object with `role` and `content`, got "hi"'),
        (
            {"messages": [{"content": "hi"}]},
            'messages[0].role: expected "system", "developer", "user", "assistant" or "tool", got nothing',
        ),
        (
            {"messages": [{"role": "tool", "content": ""}]},
            "messages[0].tool_call_id: expected the id of the call that it answers, got nothing",
        ),
        (
            {"messages": [{"role": "user", "content": 4}]},
            "messages[0].content: expected a string, null or a list of parts, got 4",
        ),
        (
            {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
            "messages[0].content[0].type: expected the kind of the part, got nothing",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}]},
            "messages[0].tool_calls[0].function.name: expected the name of the tool, got nothing",
        ),
        (hello(n=2), "n: expected 1: a rollout has one continuation for each request, got 2"),
        (hello(functions=[]), "functions: expected `tools` instead of the legacy `functions`, got []"),
        (hello(temperature="hot"), 'temperature: expected a number, got "hot"'),
        (hello(temperature=True), "temperature: expected a number, got true"),
        (hello(seed=1.5), "seed: expected a whole number, got 1.5"),
        (hello(stop=[1]), "stop[0]: expected a string, got 1"),
        (hello(model=7), "model: expected a string, got 7"),
        (
            hello(tools=[{"type": "web_search"}]),
            'tools[0].type: expected "function": no other kind of tool is supported, got "web_search"',
        ),
        (
            hello(tools=[{"type": "function", "function": {"name": "f", "parameters": []}}]),
            "tools[0].function.parameters: expected a JSON schema, got []",
        ),
    ],
)
def test_a_malformed_request_is_refused_with_its_field_what_came_and_what_was_expected(
    body: JSON, message: str
) -> None:
    with pytest.raises(DialectError) as caught:
        parse_request(cast("dict[str, JSON]", body))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"stream": "yes"}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ],
)
def test_a_malformed_wish_for_a_stream_is_refused(body: dict[str, JSON], param: str) -> None:
    with pytest.raises(DialectError) as caught:
        parse_streaming(body)
    assert caught.value.param == param


def test_an_error_shows_a_long_value_in_short() -> None:
    with pytest.raises(DialectError) as caught:
        parse_request({"messages": "x" * 100_000})
    assert len(str(caught.value)) < 200
    assert "(100002 characters)" in str(caught.value)


# Responses


def choice(**fields: JSON) -> dict[str, JSON]:
    return {"id": "r", "choices": [{"index": 0, **fields}]}


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "stop"),
        ("abort", None),
        (None, None),
        (3, None),
    ],
)
def test_finish_reasons_are_normalised(said: JSON, understood: str | None) -> None:
    body = choice(message={"role": "assistant", "content": "x"}, finish_reason=said)
    assert parse_response(body).finish_reason == understood


def test_usage_that_is_absent_or_half_is_unknown_not_zero() -> None:
    assert parse_response(choice(message={"content": "x"})).usage is None
    assert parse_usage({}) is None
    assert parse_usage({"prompt_tokens": 4}) is None
    assert parse_usage({"prompt_tokens": 4, "completion_tokens": 0}) == Usage(prompt_tokens=4, completion_tokens=0)


def test_cache_reads_are_split_from_the_prompt() -> None:
    body: JSON = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    expected = Usage(prompt_tokens=40, completion_tokens=7, cached_input_tokens=60, reasoning_tokens=5)
    assert parse_usage(body) == expected
    assert expected.input_tokens == 100


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_hidden_reasoning_is_read_under_either_name(name: str) -> None:
    message = parse_response(choice(message={"content": "4", name: "2 + 2"})).message
    assert message.reasoning_content == "2 + 2"


def test_a_refusal_is_what_the_model_said() -> None:
    assert parse_response(choice(message={"content": None, "refusal": "I will not."})).message.text == "I will not."


def test_a_tool_call_without_an_id_gets_one_that_no_other_has() -> None:
    call: JSON = {"function": {"name": "f", "arguments": {"a": 1}}}
    one, two = parse_response(choice(message={"content": None, "tool_calls": [call, call]})).message.tool_calls
    assert one.id != two.id
    assert one.arguments == '{"a":1}'


def test_an_error_that_comes_with_a_good_status_is_named() -> None:
    with pytest.raises(DialectError, match="overloaded"):
        parse_response({"error": {"message": "overloaded"}})


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": "x"}]}])
def test_a_response_without_a_choice_is_refused(body: dict[str, JSON]) -> None:
    with pytest.raises(DialectError, match="choices"):
        parse_response(body)


# Streams


def delta(finish_reason: JSON = None, **fields: JSON) -> dict[str, JSON]:
    return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def test_a_stream_opens_with_the_role_and_closes_with_reason_and_usage() -> None:
    usage = Usage(prompt_tokens=1, completion_tokens=2)
    response = Response(message=AssistantMessage("hello there, you"), usage=usage, id="r")
    first, *middle, finish, last = render_chunks(response, model="m", created=1, include_usage=True)
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    assert len(middle) > 1
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert (last["choices"], last["usage"]) == ([], render_usage(usage))
    assert all(chunk["usage"] is None for chunk in (first, *middle, finish))


def test_a_stream_carries_usage_only_where_it_was_asked_for() -> None:
    response = Response(message=AssistantMessage("x"), usage=Usage(prompt_tokens=1, completion_tokens=2))
    assert all("usage" not in chunk for chunk in render_chunks(response, model="m", created=1, include_usage=False))


def test_a_stream_that_ends_early_is_no_response() -> None:
    assembler = ChunkAssembler()
    assembler.add(delta(content="half an ans"))
    assert not assembler.finished
    with pytest.raises(DialectError, match="ended early"):
        assembler.response()


def test_either_end_of_a_stream_will_do() -> None:
    with_reason, with_done = ChunkAssembler(), ChunkAssembler()
    with_reason.add(delta("length", content="x"))
    with_done.add(delta(content="x"))
    with_done.end()
    assert with_reason.response().finish_reason == "length"
    assert with_done.response().finish_reason is None


def test_an_error_in_a_stream_is_named() -> None:
    with pytest.raises(DialectError, match="overloaded"):
        ChunkAssembler().add({"error": {"message": "overloaded"}})


def piece(index: int | None, identity: str | None, name: str | None, arguments: str) -> dict[str, JSON]:
    place: dict[str, JSON] = {} if index is None else {"index": index}
    return {**place, "id": identity, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("indices", [(0, 0, 1, 1), (0, 0, 0, 0), (None, None, None, None)])
def test_parallel_calls_are_told_apart_by_index_or_else_by_id(indices: tuple[int | None, ...]) -> None:
    one, more_of_one, two, more_of_two = indices
    response = fold(
        [
            delta(tool_calls=[piece(one, "a", "add", '{"x"')]),
            delta(tool_calls=[piece(more_of_one, None, None, ":1}")]),
            delta(tool_calls=[piece(two, "b", "sub", '{"y"')]),
            delta(tool_calls=[piece(more_of_two, "b", None, ":2}")]),
        ]
    )
    assert response.message.tool_calls == (
        ToolCall(id="a", name="add", arguments='{"x":1}'),
        ToolCall(id="b", name="sub", arguments='{"y":2}'),
    )


def test_interleaved_calls_go_to_their_own_index() -> None:
    response = fold(
        [
            delta(tool_calls=[piece(0, "a", "add", ""), piece(1, "b", "sub", "")]),
            delta(tool_calls=[piece(1, None, None, "2"), piece(0, None, None, "1")]),
        ]
    )
    assert [call.arguments for call in response.message.tool_calls] == ["1", "2"]


def test_pieces_of_provider_state_grow_together() -> None:
    response = fold(
        [
            delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "two ", "signature": None}]),
            delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "and", "signature": "s"}]),
            delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "=="}]),
        ]
    )
    assert response.message.provider_state == (
        {"type": "reasoning.text", "index": 0, "text": "two and", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "=="},
    )


def test_other_choices_of_a_stream_are_not_mixed_in() -> None:
    other: JSON = {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}
    assembler = ChunkAssembler()
    assembler.add(delta(content="mine"))
    assembler.add({"choices": [other]})
    assert not assembler.finished
    assembler.end()
    assert assembler.response().message.text == "mine"

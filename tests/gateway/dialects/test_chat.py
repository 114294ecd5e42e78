"""The chat format: what is rendered is parsed back equal, what is wrong is named, and nothing else is ever raised."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.gateway.dialects.chat import CHAT, ChatDialect, parse_message, render_message
from rollout_fsm.gateway.dialects.chat.usage import parse_usage, render_usage
from rollout_fsm.gateway.dialects.dialect import DONE, DialectError
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    NativeEvent,
    Request,
    Response,
    Sampling,
    SystemMessage,
    Tokens,
    Tool,
    ToolCall,
    ToolCallDelta,
    Usage,
    UserMessage,
)
from tests.gateway.dialects.strategies import (
    CUSTOM_TOOLS,
    MESSAGES,
    NAMES,
    NOBODY,
    RESPONSES,
    SAMPLINGS,
    TOOLS,
    USAGES,
    assembled,
    streamed,
    wire,
)
from tests.profiles import examples

# What is rendered is parsed back equal


@given(MESSAGES)
def test_a_message_comes_back_equal(message: SystemMessage) -> None:
    assert parse_message(wire(render_message(message))) == message


@given(
    st.lists(MESSAGES, min_size=1, max_size=4),
    st.lists(TOOLS | CUSTOM_TOOLS, max_size=2),
    NAMES,
    SAMPLINGS,
    st.sampled_from([CHAT, ChatDialect(limit_field="max_completion_tokens")]),
)
def test_a_request_comes_back_equal(
    messages: list[UserMessage], tools: list[Tool], model: str, sampling: Sampling, dialect: ChatDialect
) -> None:
    request = Request(messages=tuple(messages), tools=tuple(tools), model=model, sampling=sampling)
    body = dialect.render_request(request, model=model, sampling=sampling, stream=False)
    assert dialect.parse_request(wire(body)) == request


@given(RESPONSES)
def test_a_response_comes_back_equal(response: Response) -> None:
    body = CHAT.render_response(response, request=NOBODY, model=str(response.model), created=1)
    assert CHAT.parse_response(wire(body)) == response


@given(RESPONSES)
def test_a_stream_says_what_the_whole_response_says(response: Response) -> None:
    assert assembled(CHAT, streamed(CHAT, response)) == response


@given(USAGES)
def test_usage_comes_back_equal_and_cache_reads_are_counted_once(usage: Usage) -> None:
    body = wire(render_usage(usage))
    assert parse_usage(body) == usage
    assert body["prompt_tokens"] == usage.prompt_tokens + (usage.cached_input_tokens or 0)
    assert body["total_tokens"] == body["prompt_tokens"] + body["completion_tokens"]  # type: ignore[operator]


def chunk(data: Mapping[str, JSON]) -> NativeEvent:
    return NativeEvent(dialect="chat", data=data)


def fold(chunks: Iterable[Mapping[str, JSON]]) -> Response:
    return assembled(CHAT, [*map(chunk, chunks), DONE])


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


@examples(0.3)
@given(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool", "system"])}),
    st.dictionaries(FIELDS, SHAPES),
)
def test_a_message_of_any_shape_is_parsed_or_refused_with_its_field(
    role: dict[str, JSON], fields: dict[str, JSON]
) -> None:
    assert COMPLAINT.search(complaint(parse_message, {**fields, **role}))
    assert COMPLAINT.search(complaint(CHAT.parse_request, {"messages": [{**fields, **role}]}))
    assert COMPLAINT.search(complaint(CHAT.parse_response, {"choices": [{"message": {**fields, **role}}]}))
    assert COMPLAINT.search(complaint(lambda data: CHAT.assembler().add(chunk(data)), {"choices": [{"delta": fields}]}))


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
    request = CHAT.parse_request({"messages": [{"role": "developer", "content": "be brief"}]})
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
    assert CHAT.parse_request(body) == Request(
        messages=(UserMessage("hello"),),
        model="m",
        sampling=Sampling(temperature=0, max_tokens=9, stop=("END",), extra={"tool_choice": "auto", "logprobs": None}),
    )
    assert CHAT.wants_stream(body)


def test_the_newer_name_of_the_token_limit_wins() -> None:
    assert CHAT.parse_request(hello(max_tokens=5, max_completion_tokens=7)).sampling.max_tokens == 7


def test_settings_that_are_null_are_not_said() -> None:
    body = hello(temperature=None, top_p=None, max_tokens=None, seed=None, stop=None, tools=None, n=None, stream=None)
    assert CHAT.parse_request(body) == Request(messages=(UserMessage("hello"),))
    assert not CHAT.wants_stream(body)


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
        (hello(tools=[{"type": 4}]), "tools[0].type: expected the kind of the tool, got 4"),
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
        CHAT.parse_request(cast("dict[str, JSON]", body))
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
        CHAT.wants_stream(body)
    assert caught.value.param == param


def test_an_error_shows_a_long_value_in_short() -> None:
    with pytest.raises(DialectError) as caught:
        CHAT.parse_request({"messages": "x" * 100_000})
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
    assert CHAT.parse_response(body).finish_reason == understood


def test_usage_that_is_absent_or_half_is_unknown_not_zero() -> None:
    assert CHAT.parse_response(choice(message={"content": "x"})).usage is None
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
    message = CHAT.parse_response(choice(message={"content": "4", name: "2 + 2"})).message
    assert message.reasoning_content == "2 + 2"


def test_a_refusal_is_what_the_model_said() -> None:
    assert (
        CHAT.parse_response(choice(message={"content": None, "refusal": "I will not."})).message.text == "I will not."
    )


def test_a_tool_call_without_an_id_gets_one_that_no_other_has() -> None:
    call: JSON = {"function": {"name": "f", "arguments": {"a": 1}}}
    one, two = CHAT.parse_response(choice(message={"content": None, "tool_calls": [call, call]})).message.tool_calls
    assert one.id != two.id
    assert one.arguments == '{"a":1}'


def test_an_error_that_comes_with_a_good_status_is_named() -> None:
    with pytest.raises(DialectError, match="overloaded"):
        CHAT.parse_response({"error": {"message": "overloaded"}})


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": "x"}]}])
def test_a_response_without_a_choice_is_refused(body: dict[str, JSON]) -> None:
    with pytest.raises(DialectError, match="choices"):
        CHAT.parse_response(body)


# Streams


def delta(finish_reason: JSON = None, **fields: JSON) -> dict[str, JSON]:
    return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def said(finish_reason: JSON = None, **fields: JSON) -> NativeEvent:
    return chunk(delta(finish_reason, **fields))


def test_a_stream_opens_with_the_role_and_closes_with_reason_usage_and_done() -> None:
    usage = Usage(prompt_tokens=1, completion_tokens=2)
    response = Response(message=AssistantMessage("hello there, you"), usage=usage, id="r")
    *events, done = CHAT.renderer(NOBODY, model="m", created=1).end(response)
    first, *middle, finish, last = [event.data for event in events]
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    assert len(middle) > 1
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert (last["choices"], last["usage"]) == ([], render_usage(usage))
    assert all(chunk["usage"] is None for chunk in (first, *middle, finish))
    assert done == DONE


def test_a_stream_carries_usage_only_where_it_was_asked_for() -> None:
    response = Response(message=AssistantMessage("x"), usage=Usage(prompt_tokens=1, completion_tokens=2))
    renderer = CHAT.renderer(CHAT.parse_request(hello(stream=True)), model="m", created=1)
    assert all("usage" not in event.data for event in renderer.end(response))


def test_a_stream_that_ends_early_is_no_response() -> None:
    assembler = CHAT.assembler()
    assembler.add(said(content="half an ans"))
    assert not assembler.finished
    with pytest.raises(DialectError, match="ended early"):
        assembler.response()


def test_either_end_of_a_stream_will_do() -> None:
    with_reason, with_done = CHAT.assembler(), CHAT.assembler()
    with_reason.add(said("length", content="x"))
    with_done.add(said(content="x"))
    with_done.add(DONE)
    assert with_reason.response().finish_reason == "length"
    assert with_done.response().finish_reason is None


def test_an_error_in_a_stream_is_named() -> None:
    with pytest.raises(DialectError, match="overloaded"):
        CHAT.assembler().add(chunk({"error": {"message": "overloaded"}}))


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
    assembler = CHAT.assembler()
    assembler.add(said(content="mine"))
    assembler.add(chunk({"choices": [other]}))
    assert not assembler.finished
    assembler.add(DONE)
    assert assembler.response().message.text == "mine"


# Token ids and logprobs


def sampled(*logprobs: float) -> JSON:
    return {"content": [{"token": "t", "logprob": value, "bytes": None, "top_logprobs": []} for value in logprobs]}


def test_token_ids_and_logprobs_of_a_plain_answer_are_read() -> None:
    answer = choice(message={"content": "x"}, token_ids=[4, 5], logprobs=sampled(-0.5, -1))
    body: dict[str, JSON] = {**answer, "prompt_token_ids": [1, 2]}
    assert CHAT.parse_response(body).tokens == Tokens(prompt_ids=(1, 2), completion_ids=(4, 5), logprobs=(-0.5, -1.0))


def test_token_ids_and_logprobs_of_a_stream_add_up() -> None:
    def piece(text: str, ids: list[JSON], *logprobs: float, **more: JSON) -> dict[str, JSON]:
        said: JSON = {"index": 0, "delta": {"content": text}, "token_ids": ids, "logprobs": sampled(*logprobs)}
        return {"id": "r", "choices": [said], **more}

    last: dict[str, JSON] = {"choices": [{"index": 0, "delta": {}, "token_ids": None, "finish_reason": "stop"}]}
    response = fold(
        [
            piece("a", [4], -0.5, prompt_token_ids=[1, 2, 3]),
            piece("b", [5, 6], -1.0, -2.0, prompt_token_ids=None),
            last,
        ]
    )
    assert response.tokens == Tokens(prompt_ids=(1, 2, 3), completion_ids=(4, 5, 6), logprobs=(-0.5, -1.0, -2.0))
    assert response.native is not None
    assert CHAT.parse_response(response.native.body).tokens == response.tokens


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        (None, {"token_ids": [4]}),
        ([1], {"token_ids": None}),
        ([1], {"token_ids": [4, "x"]}),
        ([1], {"token_ids": [4], "logprobs": sampled(-1, -2)}),
        ([1], {"token_ids": [4, 5], "logprobs": sampled(-1)}),
        ([1], {"token_ids": [4], "logprobs": {"content": [{"token": "t"}]}}),
        ([True], {"token_ids": [4]}),
    ],
)
def test_token_ids_that_do_not_fit_together_are_no_tokens(prompt: JSON, fields: dict[str, JSON]) -> None:
    body = {**choice(message={"content": "x"}, **fields), "prompt_token_ids": prompt}
    assert CHAT.parse_response(body).tokens is None


def test_token_ids_without_logprobs_are_tokens() -> None:
    body = {**choice(message={"content": "x"}, token_ids=[4], logprobs=None), "prompt_token_ids": []}
    assert CHAT.parse_response(body).tokens == Tokens(prompt_ids=(), completion_ids=(4,))


# What the format leaves open


def test_an_endpoint_is_told_the_limit_of_tokens_under_the_name_that_it_knows() -> None:
    openai = ChatDialect(limit_field="max_completion_tokens")
    request = CHAT.parse_request(hello(max_tokens=5))
    unchanged = openai.render_request(request, model="m", sampling=request.sampling, stream=False)
    assert unchanged["max_tokens"] == 5  # what came is passed on in its own words
    changed = openai.render_request(request, model="m", sampling=Sampling(max_tokens=4), stream=False)
    assert (changed.get("max_tokens"), changed["max_completion_tokens"]) == (None, 4)


def test_the_usage_of_a_stream_is_always_asked_for_unless_the_run_says_otherwise() -> None:
    request = CHAT.parse_request(hello(stream=True, stream_options={"include_usage": False, "x": 1}))
    body = CHAT.render_request(request, model="m", sampling=request.sampling, stream=True)
    assert body["stream_options"] == {"include_usage": True, "x": 1}
    run = Sampling(extra={"stream_options": {}})
    body = CHAT.render_request(request, model="m", sampling=run.over(request.sampling), stream=True)
    assert body["stream_options"] == {}


def test_a_call_without_an_id_has_the_same_invented_one_in_what_goes_back() -> None:
    call: JSON = {"function": {"name": "f", "arguments": "{}"}}
    body = choice(message={"content": None, "tool_calls": [call, {**call, "id": "given"}]}, x=1)  # type: ignore[dict-item]
    response = CHAT.parse_response(body)
    back = CHAT.parse_response(CHAT.render_response(response, request=NOBODY, model="m", created=1))
    assert [call.id for call in back.message.tool_calls] == [call.id for call in response.message.tool_calls]
    assert response.message.tool_calls[1].id == "given"
    assert "id" not in call  # type: ignore[operator]


def test_a_call_whose_first_piece_has_no_id_keeps_the_one_that_it_was_given() -> None:
    assembler = CHAT.assembler()
    first = assembler.add(said(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]))
    assembler.add(said("tool_calls", tool_calls=[{"index": 0, "id": "late", "function": {"arguments": "{}"}}]))
    (piece,) = first.tool_calls
    assert piece == ToolCallDelta(index=0, id=piece.id, name="f")
    assert assembler.response().message.tool_calls == (ToolCall(id=piece.id, name="f", arguments="{}"),)


def test_names_that_are_told_again_are_not_told_twice() -> None:
    call: dict[str, JSON] = {"index": 0, "id": "a", "type": "function"}
    response = fold(
        [
            delta(role="assistant", tool_calls=[{**call, "function": {"name": "add", "arguments": "{"}}]),
            delta(role="assistant", tool_calls=[{**call, "function": {"name": "add", "arguments": "}"}}]),
        ]
    )
    assert response.message.tool_calls == (ToolCall(id="a", name="add", arguments="{}"),)
    assert response.native is not None
    body: dict[str, JSON] = wire(response.native.body)
    assert body["choices"][0]["message"]["role"] == "assistant"  # type: ignore[index,call-overload]

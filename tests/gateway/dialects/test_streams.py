"""Streams, in every dialect and from each to each: what is written says what was read, in the dialect's own events."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.chat import CHAT
from rollout_fsm.gateway.dialects.dialect import DONE, Dialect, DialectError
from rollout_fsm.gateway.dialects.messages import MESSAGES
from rollout_fsm.gateway.dialects.responses import RESPONSES
from rollout_fsm.messages import (
    AssistantMessage,
    Delta,
    NativeEvent,
    Response,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from tests.gateway.dialects.golden import ANSWERS, STREAMS
from tests.gateway.dialects.strategies import (
    NOBODY,
    assembled,
    deltas,
    listed,
    over_the_wire,
    plain_responses,
    streamed,
    wire,
)
from tests.profiles import examples

every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
every_pair = pytest.mark.parametrize(
    ("source", "target"),
    [(source, target) for source in DIALECTS.values() for target in DIALECTS.values()],
    ids=[f"{source}-{target}" for source in DIALECTS for target in DIALECTS],
)


def same(one: Response, other: Response) -> bool:
    """Whether two answers say the same; the arguments of calls by what they spell."""
    said = [
        (each.message.key, each.message.reasoning_content, each.message.content or None, each.usage, each.finish_reason)
        for each in (one, other)
    ]
    return said[0] == said[1]


@every_dialect
@examples(0.25)
@given(response=plain_responses())
def test_an_answer_that_was_never_streamed_is_said_whole(dialect: Dialect, response: Response) -> None:
    got = assembled(dialect, streamed(dialect, response))
    assert same(got, response)
    assert got.id == response.id


@every_dialect
@examples(0.25)
@given(response=plain_responses())
def test_a_plain_answer_says_the_same(dialect: Dialect, response: Response) -> None:
    body = dialect.render_response(response, request=NOBODY, model="m", created=1)
    got = dialect.parse_response(wire(body))
    assert same(got, response)
    assert got.id == response.id


@every_pair
@examples(0.25)
@given(response=plain_responses(), data=st.data())
def test_pieces_of_one_dialect_are_said_in_another(
    source: Dialect, target: Dialect, response: Response, data: st.DataObject
) -> None:
    said, whole = deltas(source, streamed(source, response))
    told = data.draw(st.integers(0, len(said)))
    renderer = target.renderer(NOBODY, model="m", created=1)
    if target is source and told < len(said):  # the endpoint's own events are taken back: an answer that was rewritten
        whole = evolve(whole, native=None)
    events = [event for delta in said[:told] for event in renderer.delta(delta)]
    events += renderer.end(whole)
    assert same(assembled(target, over_the_wire(events)), response)


@every_dialect
@examples(0.25)
@given(response=plain_responses())
def test_pieces_of_a_model_in_this_process_are_said(dialect: Dialect, response: Response) -> None:
    renderer = dialect.renderer(NOBODY, model="m", created=1)
    message = response.message
    pieces = [Delta(reasoning=letter) for letter in message.reasoning_content or ""]
    pieces += [Delta(content=letter) for letter in message.content or ""]
    for index, call in enumerate(message.tool_calls):
        pieces.append(Delta(tool_calls=(ToolCallDelta(index=index, id=call.id, name=call.name),)))
        pieces += [Delta(tool_calls=(ToolCallDelta(index=index, arguments=letter),)) for letter in call.arguments]
    events = [event for piece in pieces for event in renderer.delta(piece)]
    assert same(assembled(dialect, over_the_wire([*events, *renderer.end(response)])), response)


@every_dialect
def test_calls_whose_pieces_come_in_turns_are_told_apart(dialect: Dialect) -> None:
    renderer = dialect.renderer(NOBODY, model="m", created=1)
    calls = [ToolCall(id="a", name="f", arguments='{"x":1}'), ToolCall(id="b", name="g", arguments='{"y":2}')]
    response = Response(
        message=AssistantMessage(tool_calls=calls),
        finish_reason="tool_calls",
        usage=Usage(prompt_tokens=1, completion_tokens=1),
    )
    pieces = [ToolCallDelta(index=index, id=call.id, name=call.name) for index, call in enumerate(calls)]
    pieces += [
        ToolCallDelta(index=index, arguments=call.arguments[place])
        for place in range(7)
        for index, call in enumerate(calls)
    ]
    events = [event for piece in pieces for event in renderer.delta(Delta(tool_calls=(piece,)))]
    got = assembled(dialect, over_the_wire([*events, *renderer.end(response)]))
    assert got.message.tool_calls == tuple(calls)


# Events of the same dialect


@pytest.mark.parametrize(("name", "stream"), STREAMS.items(), ids=list(STREAMS))
def test_events_of_the_same_dialect_pass_untouched_and_the_last_ones_wait_for_the_end(
    name: str, stream: list[NativeEvent]
) -> None:
    dialect = DIALECTS[stream[0].dialect]
    renderer = dialect.renderer(NOBODY, model="other", created=1)
    said, whole = deltas(dialect, stream)
    passed = [event for delta in said for event in renderer.delta(delta)]
    rest = list(renderer.end(whole))
    assert [*passed, *rest] == stream
    assert all(mine is theirs for mine, theirs in zip(passed, stream, strict=False))
    assert not any(_completes(event) for event in passed)
    assert any(_completes(event) for event in rest)


def _completes(event: NativeEvent) -> bool:
    if event == DONE or event.name in ("message_stop", "response.completed", "response.incomplete"):
        return True
    return any(choice["finish_reason"] for choice in listed(event.data.get("choices", [])))


@pytest.mark.parametrize(("name", "stream"), STREAMS.items(), ids=list(STREAMS))
def test_an_answer_that_is_rewritten_after_its_events_passed_is_said_on(name: str, stream: list[NativeEvent]) -> None:
    dialect = DIALECTS[stream[0].dialect]
    said, whole = deltas(dialect, stream)
    for told in range(len(said)):
        renderer = dialect.renderer(NOBODY, model="m", created=1)
        passed = [event for delta in said[:told] for event in renderer.delta(delta)]
        rest = list(renderer.end(evolve(whole, native=None)))
        assert same(assembled(dialect, over_the_wire([*passed, *rest])), whole), told


@pytest.mark.parametrize(("name", "stream"), STREAMS.items(), ids=list(STREAMS))
def test_a_stream_adds_up_to_a_body_that_is_read_as_the_same_answer(name: str, stream: list[NativeEvent]) -> None:
    dialect = DIALECTS[stream[0].dialect]
    whole = assembled(dialect, stream)
    assert whole.native is not None
    assert whole.native.dialect == dialect.name
    assert same(dialect.parse_response(wire(whole.native.body)), whole)


@pytest.mark.parametrize(("name", "body"), ANSWERS.items(), ids=list(ANSWERS))
def test_an_answer_in_one_piece_is_streamed_with_all_that_it_has(name: str, body: dict[str, Any]) -> None:
    dialect = DIALECTS[name.partition(" ")[0]]
    response = dialect.parse_response(body)
    got = assembled(dialect, streamed(dialect, response))
    assert got == response
    assert got.native is not None
    assert got.native.body == body


@every_dialect
def test_a_stream_that_has_said_what_the_answer_does_not_have_cannot_end(dialect: Dialect) -> None:
    renderer = dialect.renderer(NOBODY, model="m", created=1)
    list(renderer.delta(Delta(content="Hello wor")))
    with pytest.raises(DialectError, match="cannot be taken back"):
        list(renderer.end(Response(message=AssistantMessage("Goodbye"))))


@every_dialect
def test_a_failure_is_an_event_that_is_read_as_one(dialect: Dialect) -> None:
    renderer = dialect.renderer(NOBODY, model="m", created=1)
    events = [*renderer.delta(Delta(content="x")), *renderer.failure("it broke", type="api_error", code="broken")]
    with pytest.raises(DialectError, match="it broke"):
        deltas(dialect, over_the_wire(events))


@every_dialect
def test_a_stream_that_ends_early_is_no_answer(dialect: Dialect) -> None:
    events = streamed(dialect, Response(message=AssistantMessage("hello")))
    assembler = dialect.assembler()
    for event in events[:3]:
        assembler.add(event)
    assert not assembler.finished
    with pytest.raises(DialectError, match="ended early"):
        assembler.response()


# Shapes


@examples(0.25)
@given(response=plain_responses(), data=st.data())
def test_blocks_of_messages_open_and_close_one_after_the_other(response: Response, data: st.DataObject) -> None:
    said, whole = deltas(CHAT, streamed(CHAT, response))
    renderer = MESSAGES.renderer(NOBODY, model="m", created=1)
    told = data.draw(st.integers(0, len(said)))
    events = [event for delta in said[:told] for event in renderer.delta(delta)]
    kinds = [(event.name, event.data.get("index")) for event in [*events, *renderer.end(whole)]]
    assert kinds[0] == ("message_start", None)
    assert kinds[-2:] == [("message_delta", None), ("message_stop", None)]
    inside = kinds[1:-2]
    for index in range(sum(1 for name, _ in inside if name == "content_block_start")):
        block = [kind for kind in inside if kind[1] == index]
        assert block[0] == ("content_block_start", index)
        assert block[-1] == ("content_block_stop", index)
        assert {name for name, _ in block[1:-1]} <= {"content_block_delta"}
        assert block == inside[inside.index(block[0]) :][: len(block)]


@examples(0.25)
@given(response=plain_responses(), data=st.data())
def test_events_of_responses_are_numbered_and_its_items_are_those_of_the_last_one(
    response: Response, data: st.DataObject
) -> None:
    said, whole = deltas(CHAT, streamed(CHAT, response))
    renderer = RESPONSES.renderer(NOBODY, model="m", created=1)
    told = data.draw(st.integers(0, len(said)))
    events: list[NativeEvent] = [event for delta in said[:told] for event in renderer.delta(delta)]
    events += renderer.end(whole)
    assert [event.data["sequence_number"] for event in events] == list(range(len(events)))
    assert all(event.data["type"] == event.name for event in events)
    done: list[Any] = [event.data for event in events if event.name == "response.output_item.done"]
    last: Any = events[-1].data["response"]
    first: Any = events[0].data["response"]
    assert [one["item"] for one in sorted(done, key=lambda one: one["output_index"])] == last["output"]
    assert first["id"] == last["id"]
    added: list[Any] = [event.data["item"] for event in events if event.name == "response.output_item.added"]
    assert [item["id"] for item in added] == [item["id"] for item in last["output"]]


def test_a_chat_stream_without_a_finish_reason_ends_with_done() -> None:
    chunk = NativeEvent(dialect="chat", data={"id": "r", "choices": [{"index": 0, "delta": {"content": "x"}}]})
    said, whole = deltas(CHAT, [chunk, DONE])
    renderer = CHAT.renderer(NOBODY, model="m", created=1)
    events = [event for delta in said for event in renderer.delta(delta)]
    assert [*events, *renderer.end(whole)] == [chunk, DONE]


def test_the_usage_that_only_the_engine_asked_for_is_not_passed_on() -> None:
    request = CHAT.parse_request({"messages": [{"role": "user", "content": "x"}], "stream": True})
    said, whole = deltas(CHAT, STREAMS["chat text"])
    renderer = CHAT.renderer(request, model="m", created=1)
    events = [event for delta in said for event in renderer.delta(delta)]
    events += renderer.end(whole)
    assert whole.usage is not None
    assert not any(event.data.get("usage") for event in events)
    assert events[-1] == DONE


def test_a_call_that_came_without_an_id_has_the_same_one_on_the_wire_and_in_the_answer() -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    body: Any = {"id": "r", "choices": [{"index": 0, "delta": {"tool_calls": [call, call | {"index": 1}]}}]}
    said, whole = deltas(CHAT, [NativeEvent(dialect="chat", data=body), DONE])
    event: Any = said[0].native
    told = [each["id"] for each in event.data["choices"][0]["delta"]["tool_calls"]]
    assert told == [each.id for each in whole.message.tool_calls] == [piece.id for piece in said[0].tool_calls]
    assert len(set(told)) == 2
    assert "id" not in body["choices"][0]["delta"]["tool_calls"][0]


def test_a_request_is_echoed_by_the_response_that_answers_it() -> None:
    request = RESPONSES.parse_request({"input": "x", "instructions": "be brief", "metadata": {"a": "b"}})
    body: Any = RESPONSES.render_response(
        Response(message=AssistantMessage("y")), request=request, model="m", created=1
    )
    assert (body["instructions"], body["metadata"], body["tools"]) == ("be brief", {"a": "b"}, [])

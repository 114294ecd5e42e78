"""Answers: usage, reasons, refusals and reasoning of every provider's shape, read as the same things."""

from typing import Any

import pytest
from hypothesis import given

from rollout_fsm.gateway.dialects import DIALECTS
from rollout_fsm.gateway.dialects.chat import CHAT
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.messages import MESSAGES
from rollout_fsm.gateway.dialects.responses import RESPONSES
from rollout_fsm.messages import AssistantMessage, FinishReason, Response, ToolCall, Usage
from tests.gateway.dialects.golden import ANSWERS
from tests.gateway.dialects.strategies import NOBODY, USAGES, wire
from tests.profiles import examples

FULL = Usage(prompt_tokens=6, completion_tokens=5, cached_input_tokens=4, reasoning_tokens=3)


def read(name: str, **changed: Any) -> Response:
    return DIALECTS[name.partition(" ")[0]].parse_response({**ANSWERS[name], **changed})


@pytest.mark.parametrize("name", ["chat text", "responses text", "messages text"])
def test_usage_is_the_same_in_each_dialects_spelling_and_adds_up(name: str) -> None:
    usage = read(name).usage
    assert usage == FULL
    assert usage.total_tokens == usage.prompt_tokens + (usage.cached_input_tokens or 0) + usage.completion_tokens == 15


@pytest.mark.parametrize(
    ("name", "usage", "expected"),
    [
        # DeepSeek, Moonshot
        ("chat", {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}, (6, 4, 5, None)),
        ("chat", {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4}, (6, 4, 5, None)),
        # one that counts cache reads beside the prompt
        (
            "chat",
            {"prompt_tokens": 2, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}},
            (2, 4, 5, None),
        ),
        # xAI counts reasoning beside the completion
        (
            "chat",
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (10, None, 8, 3),
        ),
        ("messages", {"input_tokens": 5, "output_tokens": 5, "cache_creation_input_tokens": None}, (5, None, 5, None)),
        ("responses", {"input_tokens": 5, "output_tokens": 5}, (5, None, 5, None)),
    ],
)
def test_usage_of_other_providers(name: str, usage: Any, expected: tuple[int | None, ...]) -> None:
    got = read(f"{name} text", usage=usage).usage
    assert got is not None
    assert (got.prompt_tokens, got.cached_input_tokens, got.completion_tokens, got.reasoning_tokens) == expected


@pytest.mark.parametrize("name", ["chat text", "responses text", "messages text"])
@pytest.mark.parametrize("usage", [None, {}, "x", {"output_tokens": 3, "completion_tokens": 3}, {"input_tokens": -1}])
def test_usage_that_is_absent_or_half_is_unknown_not_zero(name: str, usage: Any) -> None:
    assert read(name, usage=usage).usage is None


@pytest.mark.parametrize("name", DIALECTS)
@examples(0.2)
@given(usage=USAGES)
def test_usage_that_is_written_is_read_with_the_same_sums(name: str, usage: Usage) -> None:
    response = Response(message=AssistantMessage("x"), usage=usage)
    body = DIALECTS[name].render_response(response, request=NOBODY, model="m", created=1)
    got = DIALECTS[name].parse_response(wire(body)).usage
    assert got is not None
    assert (got.input_tokens, got.prompt_tokens, got.completion_tokens, got.total_tokens, got.cost) == (
        usage.input_tokens,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.total_tokens,
        usage.cost,
    )
    assert (got.cached_input_tokens or 0, got.reasoning_tokens or 0) == (
        usage.cached_input_tokens or 0,
        usage.reasoning_tokens or 0,
    )


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("refusal", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("something new", None),
        (None, None),
        (3, None),
    ],
)
def test_stop_reasons_of_messages(said: Any, understood: FinishReason | None) -> None:
    assert read("messages text", stop_reason=said).finish_reason == understood


@pytest.mark.parametrize(
    ("name", "changed", "understood"),
    [
        ("responses text", {}, "stop"),
        ("responses tools", {"status": "completed"}, "tool_calls"),
        ("responses tools", {}, "length"),
        ("responses text", {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "stop"),
        ("responses text", {"status": "incomplete", "incomplete_details": {"reason": "steered"}}, None),
        ("responses text", {"status": "incomplete"}, None),
    ],
)
def test_reasons_of_responses(name: str, changed: Any, understood: FinishReason | None) -> None:
    assert read(name, **changed).finish_reason == understood


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("chat text", {"error": {"message": "overloaded"}}),
        ("responses text", {"error": {"message": "overloaded"}}),
        ("messages text", {"error": {"message": "overloaded"}, "type": "error"}),
        ("responses text", {"status": "failed"}),
        ("responses text", {"status": "in_progress"}),
        ("messages text", {"content": "x"}),
        ("responses text", {"output": None}),
    ],
)
def test_what_is_no_answer_is_refused(name: str, changed: Any) -> None:
    with pytest.raises(DialectError):
        read(name, **changed)


def test_pieces_of_a_text_are_one_text_and_reasoning_is_kept_apart() -> None:
    messages = read("messages text").message
    assert messages.content == "The sky is blue."
    assert messages.reasoning_content == "One.\n\nTwo."
    assert [block["type"] for block in messages.provider_state or ()] == ["thinking", "redacted_thinking", "thinking"]
    responses = read("responses text").message
    assert responses.content == "Hello!No more."
    assert responses.reasoning_content == "One.\n\nTwo."
    assert [item["type"] for item in responses.provider_state or ()] == ["reasoning", "web_search_call"]


def test_calls_of_every_kind_are_tool_calls() -> None:
    assert read("chat tools").message.tool_calls == (
        ToolCall(id="c1", name="add", arguments='{"a": 1}'),
        ToolCall(id="c2", name="patch", arguments="free", type="custom"),
    )
    assert read("responses tools").message.tool_calls == (
        ToolCall(id="c1", name="add", arguments='{"a": 1}'),
        ToolCall(id="c2", name="patch", arguments="free", type="custom"),
        ToolCall(id="c3", name="apply_patch", arguments='{"operation":{"type":"delete_file","path":"x"}}'),
    )
    tools = read("messages tools").message
    assert tools.tool_calls == (
        ToolCall(id="c1", name="add", arguments='{"a":1,"b":[2]}'),
        ToolCall(id="c2", name="now", arguments="{}"),
    )
    assert [block["type"] for block in tools.provider_state or ()] == ["server_tool_use", "web_search_tool_result"]


def test_an_answer_without_an_id_is_given_one() -> None:
    for dialect, start in ((CHAT, "chatcmpl-"), (RESPONSES, "resp_"), (MESSAGES, "msg_")):
        body = dialect.render_response(Response(message=AssistantMessage("x")), request=NOBODY, model="m", created=1)
        assert str(body["id"]).startswith(start)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_have_the_shape_of_the_dialect(status: int, word: str) -> None:
    told: dict[str, Any] = {"type": "turn_refused", "param": None, "code": "max_turns"}
    for dialect in (CHAT, RESPONSES):
        assert dialect.error_body(status, "no", **told) == {"error": {"message": "no", **told}}
    assert MESSAGES.error_body(status, "no", **told) == {
        "type": "error",
        "error": {"type": word, "message": "no", "reason": "turn_refused", "code": "max_turns"},
    }

"""Answers of Anthropic's messages."""

from collections.abc import Mapping
from uuid import uuid4

from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.fields import (
    MISSING,
    as_list,
    count,
    detail,
    get_string,
    price,
    require_whole,
    shown,
)
from rollout_fsm.gateway.dialects.messages.blocks import NAME, read_reply, render_reply
from rollout_fsm.messages import JSON, FinishReason, Native, Response, Usage

STOP_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "refusal": "stop",
    "compaction": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
WORDS: Mapping[FinishReason | None, str | None] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    None: None,
}


def parse_response(body: Mapping[str, JSON]) -> Response:
    """An answer. Raises `DialectError`, also for an error that came with a good status."""
    require_whole(body, "the response body")
    if body.get("error"):
        raise DialectError(f"the response is an error: {shown(body['error'])}", param="error")
    content = as_list(body.get("content", MISSING), "content", "a list of content blocks")
    reason = body.get("stop_reason")
    return Response(
        message=read_reply(content, "content"),
        finish_reason=STOP_REASONS.get(reason) if isinstance(reason, str) else None,
        usage=parse_usage(body.get("usage")),
        id=get_string(body, "id") or "",
        model=get_string(body, "model"),
        native=Native(dialect=NAME, body=body),
    )


def render_response(response: Response, *, model: str) -> dict[str, JSON]:
    """An answer. `model` is the name that the client asked for."""
    if response.native is not None and response.native.dialect == NAME:
        return dict(response.native.body)
    return {
        "id": response.id or fresh_id(),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(render_reply(response.message, unsigned=True)),
        "stop_reason": WORDS[response.finish_reason],
        "stop_sequence": None,
        "usage": render_usage(response.usage),
    }


def fresh_id() -> str:
    """An id for an answer that has none."""
    return f"msg_{uuid4().hex[:24]}"


def parse_usage(value: JSON) -> Usage | None:
    """Token counts; None where there are none or only half of them (L15). What is written to the cache is read, too."""
    if not isinstance(value, dict):
        return None
    given, completion = count(value.get("input_tokens")), count(value.get("output_tokens"))
    if given is None or completion is None:
        return None
    return Usage(
        prompt_tokens=given + (count(value.get("cache_creation_input_tokens")) or 0),
        completion_tokens=completion,
        cached_input_tokens=count(value.get("cache_read_input_tokens")),
        reasoning_tokens=count(detail(value, "output_tokens_details", "thinking_tokens")),
        cost=price(value.get("cost")),
    )


def render_usage(usage: Usage | None) -> dict[str, JSON]:
    """Token counts as clients of the API expect them, zeros where they are unknown: they cannot do without."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    body: dict[str, JSON] = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    if usage.cached_input_tokens is not None:
        body["cache_read_input_tokens"] = usage.cached_input_tokens
    if usage.reasoning_tokens is not None:
        body["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    if usage.cost is not None:
        body["cost"] = usage.cost
    return body

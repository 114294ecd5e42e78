"""Answers of OpenAI's Responses."""

from collections.abc import Iterator, Mapping
from uuid import uuid4

from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.fields import (
    MISSING,
    as_list,
    as_object,
    count,
    detail,
    get_string,
    price,
    require_whole,
    shown,
)
from rollout_fsm.gateway.dialects.responses.content import NAME
from rollout_fsm.gateway.dialects.responses.items import read_reply, render_call
from rollout_fsm.gateway.dialects.state import state_for
from rollout_fsm.messages import JSON, AssistantMessage, FinishReason, Native, Request, Response, ToolCall, Usage

INCOMPLETE: Mapping[str, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "stop",
}
"""Why an answer may be incomplete."""

UNFINISHED = ("failed", "cancelled", "queued", "in_progress")

ECHOED: Mapping[str, JSON] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
"""What an answer says of its request, and what it says where the request was silent."""

PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}
"""How ids of items begin."""


def parse_response(body: Mapping[str, JSON]) -> Response:
    """An answer. Raises `DialectError`, also for one that failed or is not finished."""
    require_whole(body, "the response body")
    if body.get("error"):
        raise DialectError(f"the response is an error: {shown(body['error'])}", param="error")
    if body.get("status") in UNFINISHED:
        raise DialectError(f"status: expected a finished response, got {shown(body['status'])}", param="status")
    items = [
        as_object(raw, f"output[{place}]", "an item: an object with a `type`")
        for place, raw in enumerate(as_list(body.get("output", MISSING), "output", "a list of items"))
    ]
    message = read_reply(items, "output")
    return Response(
        message=message,
        finish_reason=_finish_reason(body, message),
        usage=parse_usage(body.get("usage")),
        id=get_string(body, "id") or "",
        model=get_string(body, "model"),
        native=Native(dialect=NAME, body=body),
    )


def _finish_reason(body: Mapping[str, JSON], message: AssistantMessage) -> FinishReason | None:
    if body.get("status") == "incomplete":
        reason = detail(body, "incomplete_details", "reason")
        return INCOMPLETE.get(reason) if isinstance(reason, str) else None
    return "tool_calls" if message.tool_calls else "stop"


def render_response(response: Response, *, request: Request, model: str, created: int) -> dict[str, JSON]:
    """An answer. `model` is the name that the client asked for, `created` is in epoch seconds."""
    if response.native is not None and response.native.dialect == NAME:
        return dict(response.native.body)
    return finished(
        opening(request, id=response.id or fresh_id("resp"), model=model, created=created),
        response,
        list(render_items(response.message)),
    )


def opening(request: Request, *, id: str, model: str, created: int) -> dict[str, JSON]:
    """An answer that is being made."""
    native = request.native
    asked = native.body if native is not None and native.dialect == NAME else {}
    return {
        "id": id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "previous_response_id": None,
        "usage": None,
        **{name: value if (said := asked.get(name)) is None else said for name, value in ECHOED.items()},
    }


def finished(body: Mapping[str, JSON], response: Response, items: list[JSON]) -> dict[str, JSON]:
    """The answer, made."""
    cut = response.finish_reason == "length"
    return {
        **body,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": items,
        "usage": None if response.usage is None else render_usage(response.usage),
    }


def fresh_id(prefix: str) -> str:
    """An id for an answer or an item that has none."""
    return f"{prefix}_{uuid4().hex}"


def render_items(message: AssistantMessage) -> Iterator[dict[str, JSON]]:
    """The items of a reply, as an answer has them."""
    state = list(state_for(NAME, message))
    yield from state
    if message.reasoning_content and not any(item["type"] == "reasoning" for item in state):
        yield new_item("reasoning", content=[{"type": "reasoning_text", "text": message.reasoning_content}])
    if message.content is not None:
        yield new_item("message", content=[text_part(message.content)])
    yield from map(call_item, message.tool_calls)


def new_item(kind: str, *, content: list[JSON]) -> dict[str, JSON]:
    """A message, or reasoning."""
    item: dict[str, JSON] = {"id": fresh_id(PREFIXES[kind]), "type": kind, "status": "completed", "content": content}
    return {**item, "role": "assistant"} if kind == "message" else {**item, "summary": []}


def call_item(call: ToolCall) -> dict[str, JSON]:
    """A tool call."""
    fields = render_call(call)
    return {"id": fresh_id(PREFIXES[str(fields["type"])]), **fields, "status": "completed"}


def text_part(text: str) -> dict[str, JSON]:
    """What a message says."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def parse_usage(value: JSON) -> Usage | None:
    """Token counts; None where there are none or only half of them (L15)."""
    if not isinstance(value, dict):
        return None
    given, completion = count(value.get("input_tokens")), count(value.get("output_tokens"))
    if given is None or completion is None:
        return None
    cached = count(detail(value, "input_tokens_details", "cached_tokens"))
    return Usage(
        prompt_tokens=given - cached if cached is not None and cached <= given else given,
        completion_tokens=completion,
        cached_input_tokens=cached,
        reasoning_tokens=count(detail(value, "output_tokens_details", "reasoning_tokens")),
        cost=price(value.get("cost")),
    )


def render_usage(usage: Usage) -> dict[str, JSON]:
    """Token counts in the API's spelling, where the input includes cache reads."""
    body: dict[str, JSON] = {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.total_tokens,
    }
    return body if usage.cost is None else {**body, "cost": usage.cost}

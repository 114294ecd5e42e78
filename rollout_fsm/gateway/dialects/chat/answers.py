"""Answers of the chat format: whole ones, and what streams of chunks add up to."""

from collections.abc import Mapping
from uuid import uuid4

from rollout_fsm.gateway.dialects.chat.messages import fresh_call_id, read_reply, render_message
from rollout_fsm.gateway.dialects.chat.requests import NAME
from rollout_fsm.gateway.dialects.chat.usage import parse_usage, render_usage
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.fields import (
    MISSING,
    as_list,
    as_object,
    get_string,
    require_whole,
    shown,
    wrong,
)
from rollout_fsm.messages import JSON, FinishReason, Native, Response, Tokens

FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "max_tokens": "length",
    "model_length": "length",
}


def parse_response(body: Mapping[str, JSON]) -> Response:
    """An answer, its first choice. Raises `DialectError`, also for an error that came with a good status."""
    require_whole(body, "the response body")
    if body.get("error"):
        raise DialectError(f"the response is an error: {shown(body['error'])}", param="error")
    choices = as_list(body.get("choices", MISSING), "choices", "a list with at least one choice")
    if not choices:
        raise wrong("choices", choices, "a list with at least one choice")
    choice = as_object(choices[0], "choices[0]", "an object with a `message`")
    message = as_object(choice.get("message", MISSING), "choices[0].message", "an object with `content`")
    named = _with_call_ids(message)
    if named is not message:
        choice = {**choice, "message": named}
        body = {**body, "choices": [choice, *choices[1:]]}
    return Response(
        message=read_reply(named, "choices[0].message"),
        finish_reason=finish_reason(choice.get("finish_reason")),
        usage=parse_usage(body.get("usage")),
        id=get_string(body, "id") or "",
        model=get_string(body, "model"),
        tokens=_tokens(body, choice),
        native=Native(dialect=NAME, body=body),
    )


def render_response(response: Response, *, model: str, created: int) -> dict[str, JSON]:
    """An answer. `model` is the name that the client asked for, `created` is in epoch seconds."""
    if response.native is not None and response.native.dialect == NAME:
        return dict(response.native.body)
    body: dict[str, JSON] = {
        "id": response.id or fresh_id(),
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": render_message(response.message), "finish_reason": response.finish_reason}],
    }
    if response.usage is not None:
        body["usage"] = render_usage(response.usage)
    return body


def fresh_id() -> str:
    """An id for an answer that has none."""
    return f"chatcmpl-{uuid4().hex}"


def finish_reason(value: JSON) -> FinishReason | None:
    """The reason in the three words that are known; a reason without a word here is no reason."""
    return FINISH_REASONS.get(value) if isinstance(value, str) else None


def _with_call_ids(message: dict[str, JSON]) -> dict[str, JSON]:
    """The message with an id for each call that came without: whoever answers the call must be able to name it."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or all(not isinstance(call, dict) or call.get("id") for call in calls):
        return message
    named: list[JSON] = [
        {**call, "id": fresh_call_id()} if isinstance(call, dict) and not call.get("id") else call for call in calls
    ]
    return {**message, "tool_calls": named}


def _tokens(body: Mapping[str, JSON], choice: Mapping[str, JSON]) -> Tokens | None:
    """What vLLM tells with `return_token_ids`; None where anything of it is missing or does not fit together."""
    prompt, completion = _ids(body.get("prompt_token_ids")), _ids(choice.get("token_ids"))
    if prompt is None or completion is None:
        return None
    said = choice.get("logprobs")
    content = said.get("content") if isinstance(said, dict) else None
    if content is None:
        return Tokens(prompt_ids=prompt, completion_ids=completion)
    logprobs = [_logprob(item) for item in content] if isinstance(content, list) else []
    known = tuple(value for value in logprobs if value is not None)
    if not len(known) == len(logprobs) == len(completion):
        return None
    return Tokens(prompt_ids=prompt, completion_ids=completion, logprobs=known)


def _ids(value: JSON) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    ids = tuple(item for item in value if type(item) is int)
    return ids if len(ids) == len(value) else None


def _logprob(item: JSON) -> float | None:
    value = item.get("logprob") if isinstance(item, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

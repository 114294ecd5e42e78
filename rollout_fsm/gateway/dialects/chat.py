"""The OpenAI chat-completions format, to and from `messages`: requests, responses, and the chunks of a stream.

Sans-IO: nothing here opens a socket, reads a clock or logs. The gateway parses requests and renders responses with it,
the model client and program harnesses render requests and parse responses. What is rendered is parsed back equal.
Fields of a request that the engine has no name for travel on in `Sampling.extra`; what cannot be carried faithfully is
refused with a `DialectError` that says which field it was.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal
from uuid import uuid4

from attrs import Factory, define, frozen

from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Content,
    FinishReason,
    ImagePart,
    Message,
    OtherPart,
    Part,
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

__all__ = [
    "ChunkAssembler",
    "Streaming",
    "parse_message",
    "parse_request",
    "parse_response",
    "parse_streaming",
    "parse_usage",
    "render_chunks",
    "render_message",
    "render_request",
    "render_response",
    "render_sampling",
    "render_tool",
    "render_usage",
]

SHOWN = 80
"""How many characters of an offending value an error shows."""

PIECES = 4
"""In how many deltas a stream carries a text."""

_NAMED = frozenset({"model", "messages", "tools", "n", "stream", "stream_options", "functions", "function_call"})
_SETTINGS = frozenset(
    {"temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop", "reasoning_effort"}
)

_FINISH_REASONS: Mapping[str, FinishReason] = {
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

_MISSING = object()


@frozen(kw_only=True)
class Streaming:
    """How a client wants its answer: whole or in chunks, and with a last chunk that carries the usage or without."""

    stream: bool = False
    include_usage: bool = False


# Requests


def parse_request(body: Mapping[str, JSON]) -> Request:
    """A request body as a `Request`. Unknown settings go to `sampling.extra`; `stream` is read by `parse_streaming`.

    Raises `DialectError`, also for `n` above 1 and for the legacy `functions`: the engine can carry neither.
    """
    _whole(body, "the request body")
    if body.get("n") not in (None, 1):
        raise _wrong("n", body["n"], "1: a rollout has one continuation for each request")
    for legacy, successor in (("functions", "tools"), ("function_call", "tool_choice")):
        if body.get(legacy) is not None:
            raise _wrong(legacy, body[legacy], f"`{successor}` instead of the legacy `{legacy}`")
    messages = _list(body.get("messages", _MISSING), "messages", "a list with at least one message")
    if not messages:
        raise _wrong("messages", messages, "a list with at least one message")
    tools = body.get("tools")
    return Request(
        messages=tuple(_message(raw, f"messages[{place}]") for place, raw in enumerate(messages)),
        tools=()
        if tools is None
        else tuple(_tool(raw, f"tools[{place}]") for place, raw in enumerate(_list(tools, "tools", "a list of tools"))),
        model=_optional_string(body, "model"),
        sampling=_sampling(body),
    )


def parse_streaming(body: Mapping[str, JSON]) -> Streaming:
    """Whether the answer is wanted as a stream. Raises `DialectError`."""
    _whole(body, "the request body")
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise _wrong("stream", stream, "true or false")
    options = body.get("stream_options")
    if options is None:
        return Streaming(stream=bool(stream))
    usage = _object(options, "stream_options", "an object").get("include_usage")
    if usage is not None and not isinstance(usage, bool):
        raise _wrong("stream_options.include_usage", usage, "true or false")
    return Streaming(stream=bool(stream), include_usage=bool(usage))


def render_request(
    request: Request,
    *,
    model: str | None,
    sampling: Sampling,
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
) -> dict[str, JSON]:
    """A request body. `sampling` is final; the request's own settings and model are not looked at.

    `limit_field` is what the provider calls `max_tokens`: OpenAI's reasoning models take `max_completion_tokens` only.
    """
    body: dict[str, JSON] = {} if model is None else {"model": model}
    body["messages"] = [render_message(message) for message in request.messages]
    if request.tools:
        body["tools"] = [render_tool(tool) for tool in request.tools]
    body.update(render_sampling(sampling, limit_field=limit_field))
    return body


def render_sampling(
    sampling: Sampling, *, limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
) -> dict[str, JSON]:
    """The settings that are said, under the format's names; `extra` as it is."""
    named: dict[str, JSON] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        limit_field: sampling.max_tokens,
        "seed": sampling.seed,
        "stop": None if sampling.stop is None else list(sampling.stop),
        "reasoning_effort": sampling.reasoning_effort,
    }
    return {**sampling.extra, **{name: value for name, value in named.items() if value is not None}}


def _sampling(body: Mapping[str, JSON]) -> Sampling:
    newer = _integer(body, "max_completion_tokens")
    older = _integer(body, "max_tokens")
    return Sampling(
        temperature=_number(body, "temperature"),
        top_p=_number(body, "top_p"),
        max_tokens=older if newer is None else newer,
        seed=_integer(body, "seed"),
        stop=_stop(body.get("stop")),
        reasoning_effort=_optional_string(body, "reasoning_effort"),
        extra={name: value for name, value in body.items() if name not in _NAMED and name not in _SETTINGS},
    )


def _stop(value: JSON) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    expected = "a string or a list of strings"
    return tuple(
        _string(item, f"stop[{place}]", "a string") for place, item in enumerate(_list(value, "stop", expected))
    )


# Tools


def render_tool(tool: Tool) -> dict[str, JSON]:
    """A tool in its nested form."""
    function: dict[str, JSON] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = dict(tool.parameters)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool(raw: JSON, where: str) -> Tool:
    tool = _object(raw, where, "a tool: an object with `type` and `function`")
    if tool.get("type", "function") != "function":
        raise _wrong(f"{where}.type", tool["type"], '"function": no other kind of tool is supported')
    inner = f"{where}.function"
    function = _object(tool.get("function", _MISSING), inner, "an object with `name` and `parameters`")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong(f"{inner}.strict", strict, "true or false")
    parameters = function.get("parameters")
    return Tool(
        name=_string(function.get("name", _MISSING), f"{inner}.name", "the tool's name"),
        description=_optional_string(function, "description", inner) or "",
        parameters={} if parameters is None else _object(parameters, f"{inner}.parameters", "a JSON schema"),
        strict=strict,
    )


def _render_call(call: ToolCall) -> dict[str, JSON]:
    payload: dict[str, JSON] = {"name": call.name, _ARGUMENTS[call.type]: call.arguments}
    return {"id": call.id, "type": call.type, call.type: payload}


_ARGUMENTS: Mapping[Literal["function", "custom"], str] = {"function": "arguments", "custom": "input"}


def _call(raw: JSON, where: str) -> ToolCall:
    call = _object(raw, where, "a tool call: an object with `id` and `function`")
    kind = _kind(call.get("type"), f"{where}.type")
    inner = f"{where}.{kind}"
    payload = _object(call.get(kind, _MISSING), inner, "an object with a `name`")
    identity = call.get("id")
    return ToolCall(
        id=_string(identity, f"{where}.id", "a string") if identity else _fresh_call_id(),
        name=_string(payload.get("name", _MISSING), f"{inner}.name", "the name of the tool"),
        arguments=_arguments(payload.get(_ARGUMENTS[kind]), f"{inner}.{_ARGUMENTS[kind]}"),
        type=kind,
    )


def _kind(value: JSON, where: str) -> Literal["function", "custom"]:
    match value:
        case None | "" | "function":
            return "function"
        case "custom":
            return "custom"
    raise _wrong(where, value, '"function" or "custom"')


def _arguments(value: JSON, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):  # some servers send the object instead of its text
        return json.dumps(value, separators=(",", ":"))
    return _string(value, where, "the arguments as text")


def _fresh_call_id() -> str:
    """An id for a call that came without: a tool message must be able to name it, in all of a conversation."""
    return f"call_{uuid4().hex[:24]}"


# Messages


def render_message(message: Message) -> dict[str, JSON]:
    """A message as the format spells it."""
    match message:
        case AssistantMessage():
            body: dict[str, JSON] = {"role": message.role, "content": message.content}
            if message.reasoning_content is not None:
                body["reasoning_content"] = message.reasoning_content
            if message.provider_state is not None:
                body["reasoning_details"] = [dict(item) for item in message.provider_state]
            if message.tool_calls:
                body["tool_calls"] = [_render_call(call) for call in message.tool_calls]
            return body
        case ToolMessage():
            named: dict[str, JSON] = {} if message.name is None else {"name": message.name}
            return {
                "role": message.role,
                "tool_call_id": message.tool_call_id,
                **named,
                "content": _render_content(message.content),
            }
    return {"role": message.role, "content": _render_content(message.content)}


def parse_message(message: Mapping[str, JSON]) -> Message:
    """A message from its wire form. Raises `DialectError`."""
    return _message(message, "message")


def _message(raw: object, where: str) -> Message:
    body = _object(raw, where, "a message: an object with `role` and `content`")
    match body.get("role", _MISSING):
        case "user":
            return UserMessage(_content(body.get("content"), f"{where}.content"))
        case "assistant":
            return _assistant(body, where)
        case "tool":
            return ToolMessage(
                _content(body.get("content"), f"{where}.content"),
                tool_call_id=_string(
                    body.get("tool_call_id", _MISSING), f"{where}.tool_call_id", "the id of the call that it answers"
                ),
                name=_optional_string(body, "name", where),
            )
        case "system" | "developer":
            return SystemMessage(_content(body.get("content"), f"{where}.content"))
        case other:
            raise _wrong(f"{where}.role", other, '"system", "developer", "user", "assistant" or "tool"')


def _assistant(body: Mapping[str, JSON], where: str) -> AssistantMessage:
    content = body.get("content")
    if content is None:
        content = body.get("refusal")  # what the model said, if it would say nothing else
    calls = body.get("tool_calls")
    state = body.get("reasoning_details")
    return AssistantMessage(
        content if content is None or isinstance(content, str) else _spoken(content, f"{where}.content"),
        reasoning_content=_reasoning(body, where),
        tool_calls=()
        if calls is None
        else tuple(
            _call(raw, f"{where}.tool_calls[{place}]")
            for place, raw in enumerate(_list(calls, f"{where}.tool_calls", "a list of tool calls"))
        ),
        provider_state=None if state is None else tuple(_details(state, f"{where}.reasoning_details")),
    )


def _reasoning(body: Mapping[str, JSON], where: str) -> str | None:
    named = _optional_string(body, "reasoning_content", where)
    return _optional_string(body, "reasoning", where) if named is None else named


def _details(value: JSON, where: str) -> Iterator[Mapping[str, JSON]]:
    for place, raw in enumerate(_list(value, where, "a list of objects")):
        yield _object(raw, f"{where}[{place}]", "an object")


def _spoken(value: JSON, where: str) -> str:
    """A reply that was sent back in parts, as the one text that a reply is."""
    texts = []
    for place, raw in enumerate(_list(value, where, "a string, null or a list of parts")):
        if isinstance(raw, str):
            texts.append(raw)
            continue
        part = _object(raw, f"{where}[{place}]", "a part: an object with a `type`")
        field = "refusal" if part.get("type") == "refusal" else "text"
        texts.append(_string(part.get(field, _MISSING), f"{where}[{place}].{field}", "a string"))
    return "\n".join(texts)


def _content(value: JSON, where: str) -> Content:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts = _list(value, where, "a string, null or a list of parts")
    return tuple(_part(raw, f"{where}[{place}]") for place, raw in enumerate(parts))


def _part(raw: JSON, where: str) -> Part:
    if isinstance(raw, str):
        return TextPart(raw)
    part = _object(raw, where, "a part: an object with a `type`")
    match _string(part.get("type", _MISSING), f"{where}.type", "the kind of the part"):
        case "text":
            return TextPart(_string(part.get("text", _MISSING), f"{where}.text", "a string"))
        case "image_url":
            inner = f"{where}.image_url"
            image = part.get("image_url", _MISSING)
            if isinstance(image, str):
                return ImagePart(image)
            fields = _object(image, inner, "an object with a `url`")
            url = _string(fields.get("url", _MISSING), f"{inner}.url", "a URL")
            return ImagePart(url, _optional_string(fields, "detail", inner))
    return OtherPart(part)


def _render_content(content: Content) -> JSON:
    return content if isinstance(content, str) else [_render_part(part) for part in content]


def _render_part(part: Part) -> dict[str, JSON]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            image: dict[str, JSON] = {"url": part.url}
            if part.detail is not None:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
    return dict(part.data)


# Responses


def parse_response(body: Mapping[str, JSON]) -> Response:
    """A response body, its first choice. Raises `DialectError`, also for an error that came with a good status."""
    _whole(body, "the response body")
    if body.get("error"):
        raise DialectError(f"the response is an error: {_shown(body['error'])}", param="error")
    choices = _list(body.get("choices", _MISSING), "choices", "a list with at least one choice")
    if not choices:
        raise _wrong("choices", choices, "a list with at least one choice")
    choice = _object(choices[0], "choices[0]", "an object with a `message`")
    message = _object(choice.get("message", _MISSING), "choices[0].message", "an object with `content`")
    return Response(
        message=_assistant(message, "choices[0].message"),
        finish_reason=_finish_reason(choice.get("finish_reason")),
        usage=parse_usage(body.get("usage")),
        id=_optional_string(body, "id") or "",
        model=_optional_string(body, "model"),
    )


def render_response(response: Response, *, model: str, created: int) -> dict[str, JSON]:
    """A response body. `model` is the name that the client asked for, `created` is in epoch seconds."""
    body: dict[str, JSON] = {
        "id": response.id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": render_message(response.message), "finish_reason": response.finish_reason}],
    }
    if response.usage is not None:
        body["usage"] = render_usage(response.usage)
    return body


def _finish_reason(value: JSON) -> FinishReason | None:
    """The reason in the three words that are known; a reason without a word here is no reason."""
    return _FINISH_REASONS.get(value) if isinstance(value, str) else None


def parse_usage(value: JSON) -> Usage | None:
    """Token counts as a provider reports them; None where it reports none or only half of them (L15)."""
    if not isinstance(value, dict):
        return None
    prompt, completion = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    cached = _count(_detail(value, "prompt_tokens_details", "cached_tokens"))
    if cached is None:
        cached = _count(value.get("prompt_cache_hit_tokens"))
    cost = value.get("cost")
    return Usage(
        prompt_tokens=max(prompt - (cached or 0), 0),
        completion_tokens=completion,
        cached_input_tokens=cached,
        reasoning_tokens=_count(_detail(value, "completion_tokens_details", "reasoning_tokens")),
        cost=cost if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
    )


def render_usage(usage: Usage) -> dict[str, JSON]:
    """Token counts in the format's spelling, where the prompt includes cache reads."""
    body: dict[str, JSON] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_input_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    if usage.cost is not None:
        body["cost"] = usage.cost
    return body


def _detail(usage: Mapping[str, JSON], group: str, name: str) -> JSON:
    details = usage.get(group)
    return details.get(name) if isinstance(details, dict) else None


def _count(value: JSON) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


# Streams


def render_chunks(
    response: Response, *, model: str, created: int, include_usage: bool = False
) -> Iterator[dict[str, JSON]]:
    """The chunks of a stream that says what `render_response` says; the `[DONE]` after them is the sender's."""
    message = response.message

    def chunk(delta: dict[str, JSON], finish: FinishReason | None = None) -> dict[str, JSON]:
        choice: dict[str, JSON] = {"index": 0, "delta": delta, "finish_reason": finish}
        return envelope([choice])

    def envelope(choices: list[JSON]) -> dict[str, JSON]:
        body: dict[str, JSON] = {
            "id": response.id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "choices": choices,
        }
        if include_usage:
            body["usage"] = None
        return body

    yield chunk({"role": "assistant", "content": None if message.content is None else ""})
    if message.reasoning_content is not None:
        for piece in _pieces(message.reasoning_content):
            yield chunk({"reasoning_content": piece})
    if message.provider_state is not None:
        yield chunk({"reasoning_details": [dict(item) for item in message.provider_state]})
    for piece in _pieces(message.content) if message.content else ():
        yield chunk({"content": piece})
    for place, call in enumerate(message.tool_calls):
        field = _ARGUMENTS[call.type]
        opening: dict[str, JSON] = {"name": call.name, field: ""}
        yield chunk({"tool_calls": [{"index": place, "id": call.id, "type": call.type, call.type: opening}]})
        for piece in _pieces(call.arguments) if call.arguments else ():
            yield chunk({"tool_calls": [{"index": place, call.type: {field: piece}}]})
    yield chunk({}, response.finish_reason)
    if include_usage and response.usage is not None:
        yield {**envelope([]), "usage": render_usage(response.usage)}


def _pieces(text: str) -> Iterator[str]:
    size = max(-(-len(text) // PIECES), 1)
    for start in range(0, max(len(text), 1), size):
        yield text[start : start + size]


@define
class _CallDraft:
    id: str = ""
    type: Literal["function", "custom"] = "function"
    name: str = ""
    arguments: list[str] = Factory(list)


@define
class _StateDraft:
    """An item of provider state that grows: its texts come in pieces, its other fields whole."""

    fields: dict[str, JSON]
    texts: dict[str, list[str]]

    def whole(self) -> dict[str, JSON]:
        return {**self.fields, **{name: "".join(pieces) for name, pieces in self.texts.items()}}


_GROWING = ("text", "summary", "data")


class ChunkAssembler:
    """Folds the chunks of a stream into the response that they say.

    `add` each chunk in order, `end` at `[DONE]`, then `response`. Only the first choice is read. Linear in what came.
    """

    def __init__(self) -> None:
        self._content: list[str] | None = None
        self._reasoning: list[str] | None = None
        self._refusal: list[str] = []
        self._calls: list[_CallDraft] = []
        self._by_index: dict[int, _CallDraft] = {}
        self._state: list[_StateDraft] | None = None
        self._finish_reason: FinishReason | None = None
        self._finished = False
        self._usage: Usage | None = None
        self._id = ""
        self._model: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the stream has said that it is complete, by a finish reason or by `[DONE]`."""
        return self._finished

    def add(self, chunk: Mapping[str, JSON]) -> None:
        """Take the next chunk. Raises `DialectError`, also for an error that the stream reports."""
        _whole(chunk, "the chunk")
        if chunk.get("error"):
            raise DialectError(f"the stream reports an error: {_shown(chunk['error'])}", param="error")
        self._id = self._id or _optional_string(chunk, "id") or ""
        self._model = self._model or _optional_string(chunk, "model")
        self._usage = parse_usage(chunk.get("usage")) or self._usage
        for place, raw in enumerate(_list(chunk.get("choices") or [], "choices", "a list of choices")):
            choice = _object(raw, f"choices[{place}]", "an object with a `delta`")
            if choice.get("index", 0) != 0:
                continue
            self._fold(_object(choice.get("delta") or {}, f"choices[{place}].delta", "an object"))
            if choice.get("finish_reason") is not None:
                self._finished = True
                self._finish_reason = _finish_reason(choice["finish_reason"])

    def end(self) -> None:
        """The stream said `[DONE]`."""
        self._finished = True

    def response(self) -> Response:
        """The response. Raises `DialectError` when the stream broke off before it said that it was complete."""
        if not self._finished:
            raise DialectError("the stream ended early, without a finish_reason or [DONE]: the answer is cut off")
        content = None if self._content is None else "".join(self._content)
        return Response(
            message=AssistantMessage(
                content or "".join(self._refusal) or content,
                reasoning_content=None if self._reasoning is None else "".join(self._reasoning),
                tool_calls=tuple(_finished_call(draft, place) for place, draft in enumerate(self._calls)),
                provider_state=None if self._state is None else tuple(draft.whole() for draft in self._state),
            ),
            finish_reason=self._finish_reason,
            usage=self._usage,
            id=self._id,
            model=self._model,
        )

    def _fold(self, delta: Mapping[str, JSON]) -> None:
        if (content := _optional_string(delta, "content", "delta")) is not None:
            self._content = self._content or []
            self._content.append(content)
        if (reasoning := _reasoning(delta, "delta")) is not None:
            self._reasoning = self._reasoning or []
            self._reasoning.append(reasoning)
        if (refusal := _optional_string(delta, "refusal", "delta")) is not None:
            self._refusal.append(refusal)
        if (state := delta.get("reasoning_details")) is not None:
            self._state = self._state or []
            self._fold_state(self._state, _details(state, "delta.reasoning_details"))
        calls = delta.get("tool_calls")
        for place, raw in enumerate(_list(calls, "delta.tool_calls", "a list") if calls is not None else ()):
            where = f"delta.tool_calls[{place}]"
            self._fold_call(_object(raw, where, "an object"), where)

    def _fold_state(self, drafts: list[_StateDraft], items: Iterable[Mapping[str, JSON]]) -> None:
        for item in items:
            growing = {name: value for name in _GROWING if isinstance(value := item.get(name), str)}
            fields = {name: value for name, value in item.items() if name not in growing}
            last = drafts[-1] if drafts else None
            if last is None or not _continues(last.fields, fields):
                drafts.append(_StateDraft(fields, {name: [value] for name, value in growing.items()}))
                continue
            last.fields.update({name: value for name, value in fields.items() if value is not None})
            for name, value in growing.items():
                last.texts.setdefault(name, []).append(value)

    def _fold_call(self, raw: Mapping[str, JSON], where: str) -> None:
        draft = self._draft(raw.get("index"), _optional_string(raw, "id", where) or "")
        if raw.get("type"):
            draft.type = _kind(raw["type"], f"{where}.type")
        payload = raw.get(draft.type)
        if payload is None:
            return
        fields = _object(payload, f"{where}.{draft.type}", "an object")
        draft.name = draft.name or _optional_string(fields, "name", f"{where}.{draft.type}") or ""
        field = _ARGUMENTS[draft.type]
        draft.arguments.append(_arguments(fields.get(field), f"{where}.{draft.type}.{field}"))

    def _draft(self, index: JSON, identity: str) -> _CallDraft:
        """The call that a delta belongs to. Some servers give no index, or 0 to every call: then a new id tells."""
        draft = self._by_index.get(index) if isinstance(index, int) else self._calls[-1] if self._calls else None
        if draft is None or (identity and draft.id and identity != draft.id):
            draft = _CallDraft()
            self._calls.append(draft)
            if isinstance(index, int):
                self._by_index[index] = draft
        draft.id = draft.id or identity
        return draft


def _continues(earlier: Mapping[str, JSON], later: Mapping[str, JSON]) -> bool:
    index = later.get("index")
    return index is not None and index == earlier.get("index") and later.get("type") == earlier.get("type")


def _finished_call(draft: _CallDraft, place: int) -> ToolCall:
    if not draft.name:
        raise _wrong(f"tool_calls[{place}].{draft.type}.name", _MISSING, "the name of the tool in one of its chunks")
    return ToolCall(
        id=draft.id or _fresh_call_id(), name=draft.name, arguments="".join(draft.arguments), type=draft.type
    )


# Fields


def _whole(body: object, what: str) -> None:
    if not isinstance(body, Mapping):
        raise DialectError(f"{what}: expected a JSON object, got {_shown(body)}")


def _object(value: object, where: str, expected: str) -> dict[str, JSON]:
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    raise _wrong(where, value, expected)


def _list(value: object, where: str, expected: str) -> list[JSON]:
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    raise _wrong(where, value, expected)


def _string(value: object, where: str, expected: str) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(where, value, expected)


def _optional_string(body: Mapping[str, JSON], name: str, where: str = "") -> str | None:
    value = body.get(name)
    return None if value is None else _string(value, f"{where}.{name}" if where else name, "a string")


def _number(body: Mapping[str, JSON], name: str) -> float | None:
    value = body.get(name)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise _wrong(name, value, "a number")


def _integer(body: Mapping[str, JSON], name: str) -> int | None:
    value = body.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, float) and value.is_integer():  # how some languages write a whole number
        return int(value)
    raise _wrong(name, value, "a whole number")


def _wrong(where: str, value: object, expected: str) -> DialectError:
    return DialectError(f"{where}: expected {expected}, got {_shown(value)}", param=where)


def _shown(value: object) -> str:
    if value is _MISSING:
        return "nothing"
    try:
        text = json.dumps(value, default=repr)
    except (ValueError, RecursionError):
        text = repr(type(value))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"

"""Messages of the chat format, in requests and answers."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal
from uuid import uuid4

from attrs import evolve

from rollout_fsm.gateway.dialects.documents import part_for
from rollout_fsm.gateway.dialects.fields import MISSING, as_list, as_object, as_string, get_list, get_string, wrong
from rollout_fsm.gateway.dialects.state import state_for
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Content,
    ImagePart,
    Message,
    OtherPart,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

Kind = Literal["function", "custom"]

ARGUMENTS: Mapping[Kind, str] = {"function": "arguments", "custom": "input"}
"""Where a call has its text."""

IMAGES = "The images of this result are in the next message."
"""What stands in the place of a result that is nothing but images."""


def render_message(message: Message) -> dict[str, JSON]:
    """A message as the format spells it."""
    match message:
        case AssistantMessage():
            return _render_reply(message)
        case ToolMessage():
            named: dict[str, JSON] = {} if message.name is None else {"name": message.name}
            return {
                "role": message.role,
                "tool_call_id": message.tool_call_id,
                **named,
                "content": _render_content(message.content),
            }
    return {"role": message.role, "content": _render_content(message.content)}


def _render_reply(message: AssistantMessage) -> dict[str, JSON]:
    body: dict[str, JSON] = {"role": message.role, "content": message.content}
    if message.reasoning_content is not None:
        body["reasoning_content"] = message.reasoning_content
    if (state := list(state_for("chat", message))) or message.provider_state == ():
        body["reasoning_details"] = list(state)
    if message.tool_calls:
        body["tool_calls"] = [render_call(call) for call in message.tool_calls]
    return body


def parse_message(message: Mapping[str, JSON]) -> Message:
    """A message from its wire form. Raises `DialectError`."""
    return read_message(message, "message")


def read_message(raw: object, where: str) -> Message:
    """The message at a place of a body."""
    body = as_object(raw, where, "a message: an object with `role` and `content`")
    match body.get("role", MISSING):
        case "user":
            return UserMessage(_content(body.get("content"), f"{where}.content"))
        case "assistant":
            return read_reply(body, where)
        case "tool":
            return ToolMessage(
                _content(body.get("content"), f"{where}.content"),
                tool_call_id=as_string(
                    body.get("tool_call_id", MISSING), f"{where}.tool_call_id", "the id of the call that it answers"
                ),
                name=get_string(body, "name", where),
            )
        case "system" | "developer":
            return SystemMessage(_content(body.get("content"), f"{where}.content"))
        case other:
            raise wrong(f"{where}.role", other, '"system", "developer", "user", "assistant" or "tool"')


def read_reply(body: Mapping[str, JSON], where: str) -> AssistantMessage:
    """An assistant's message, of a request or of an answer."""
    content = body.get("content")
    text = content if content is None or isinstance(content, str) else _spoken(content, f"{where}.content")
    state = body.get("reasoning_details")
    calls = get_list(body, "tool_calls", where, "a list of tool calls")
    return AssistantMessage(
        text or get_string(body, "refusal", where) or text,  # what the model said, if it would say nothing else
        reasoning_content=reasoning_of(body, where),
        tool_calls=tuple(_call(raw, f"{where}.tool_calls[{place}]") for place, raw in enumerate(calls)),
        provider_state=None if state is None else tuple(_details(state, f"{where}.reasoning_details")),
    )


def reasoning_of(body: Mapping[str, JSON], where: str) -> str | None:
    """Hidden reasoning, under either of the names that it goes by."""
    named = get_string(body, "reasoning_content", where)
    return get_string(body, "reasoning", where) if named is None else named


def _details(value: JSON, where: str) -> Iterator[Mapping[str, JSON]]:
    for place, raw in enumerate(as_list(value, where, "a list of objects")):
        yield as_object(raw, f"{where}[{place}]", "an object")


def _spoken(value: JSON, where: str) -> str:
    """A reply in parts, as the one text that a reply is."""
    texts = []
    for place, raw in enumerate(as_list(value, where, "a string, null or a list of parts")):
        if isinstance(raw, str):
            texts.append(raw)
            continue
        part = as_object(raw, f"{where}[{place}]", "a part: an object with a `type`")
        field = "refusal" if part.get("type") == "refusal" else "text"
        texts.append(as_string(part.get(field, MISSING), f"{where}[{place}].{field}"))
    return "".join(texts)


def with_images_beside(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages with the images of tool results in a user's message after them: the API takes text from a tool
    only, and other APIs take images, too."""
    images: list[ImagePart] = []
    for message in messages:
        if not isinstance(message, ToolMessage):
            if images:
                yield UserMessage(tuple(images))
                images = []
            yield message
            continue
        parts = message.content if isinstance(message.content, tuple) else ()
        seen = [part for part in parts if isinstance(part, ImagePart)]
        images.extend(seen)
        left = tuple(part for part in parts if not isinstance(part, ImagePart))
        yield evolve(message, content=left or IMAGES) if seen else message
    if images:
        yield UserMessage(tuple(images))


# Tool calls


def render_call(call: ToolCall) -> dict[str, JSON]:
    """A tool call in its nested form."""
    payload: dict[str, JSON] = {"name": call.name, ARGUMENTS[call.type]: call.arguments}
    return {"id": call.id, "type": call.type, call.type: payload}


def _call(raw: JSON, where: str) -> ToolCall:
    call = as_object(raw, where, "a tool call: an object with `id` and `function`")
    kind = kind_of(call.get("type"), f"{where}.type")
    inner = f"{where}.{kind}"
    payload = as_object(call.get(kind, MISSING), inner, "an object with a `name`")
    identity = call.get("id")
    return ToolCall(
        id=as_string(identity, f"{where}.id") if identity else fresh_call_id(),
        name=as_string(payload.get("name", MISSING), f"{inner}.name", "the name of the tool"),
        arguments=arguments_of(payload.get(ARGUMENTS[kind]), f"{inner}.{ARGUMENTS[kind]}"),
        type=kind,
    )


def kind_of(value: JSON, where: str) -> Kind:
    """The kind of a call."""
    match value:
        case None | "" | "function":
            return "function"
        case "custom":
            return "custom"
    raise wrong(where, value, '"function" or "custom"')


def arguments_of(value: JSON, where: str) -> str:
    """The text of a call."""
    if value is None:
        return ""
    if isinstance(value, dict):  # some servers send the object instead of its text
        return json.dumps(value, separators=(",", ":"))
    return as_string(value, where, "the arguments as text")


def fresh_call_id() -> str:
    """An id for a call that came without: a tool message must be able to name it, in all of a conversation."""
    return f"call_{uuid4().hex[:24]}"


# Content


def _content(value: JSON, where: str) -> Content:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts = as_list(value, where, "a string, null or a list of parts")
    return tuple(_part(raw, f"{where}[{place}]") for place, raw in enumerate(parts))


def _part(raw: JSON, where: str) -> Part:
    if isinstance(raw, str):
        return TextPart(raw)
    part = as_object(raw, where, "a part: an object with a `type`")
    match as_string(part.get("type", MISSING), f"{where}.type", "the kind of the part"):
        case "text":
            return TextPart(as_string(part.get("text", MISSING), f"{where}.text"))
        case "image_url":
            inner = f"{where}.image_url"
            image = part.get("image_url", MISSING)
            if isinstance(image, str):
                return ImagePart(image)
            fields = as_object(image, inner, "an object with a `url`")
            url = as_string(fields.get("url", MISSING), f"{inner}.url", "a URL")
            return ImagePart(url, get_string(fields, "detail", inner))
    return OtherPart(part)


def _render_content(content: Content) -> JSON:
    return content if isinstance(content, str) else [render_part(part) for part in content]


def render_part(part: Part) -> dict[str, JSON]:
    """A part of a message's content."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            image: dict[str, JSON] = {"url": part.url}
            if part.detail is not None:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
    return part_for("chat", part)

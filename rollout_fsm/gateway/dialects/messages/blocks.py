"""Content blocks of Anthropic's messages, in requests and answers."""

from collections.abc import Iterator, Mapping

from rollout_fsm.arguments import as_object as arguments_object
from rollout_fsm.arguments import as_text
from rollout_fsm.gateway.dialects.content import data_url, split_data_url
from rollout_fsm.gateway.dialects.documents import part_for
from rollout_fsm.gateway.dialects.fields import MISSING, as_list, as_object, as_string, get_string
from rollout_fsm.gateway.dialects.state import state_for
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Content,
    ImagePart,
    OtherPart,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
)

NAME = "messages"

BREAK = "\n\n"
"""What stands between two stretches of reasoning."""

BLOCKS = "a string or a list of content blocks"


def read_content(value: JSON, where: str) -> Content:
    """What a user, a tool or the instructions say."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return tuple(_part(raw, f"{where}[{place}]") for place, raw in enumerate(as_list(value, where, BLOCKS)))


def _part(raw: JSON, where: str) -> Part:
    block = as_object(raw, where, "a content block: an object with a `type`")
    match as_string(block.get("type", MISSING), f"{where}.type", "the kind of the block"):
        case "text":
            return TextPart(as_string(block.get("text", MISSING), f"{where}.text"))
        case "image":
            inner = f"{where}.source"
            source = as_object(block.get("source", MISSING), inner, "where the image is from")
            match source.get("type"):
                case "base64":
                    media = as_string(source.get("media_type", MISSING), f"{inner}.media_type", "an image's type")
                    data = as_string(source.get("data", MISSING), f"{inner}.data", "the image in base64")
                    return ImagePart(data_url(media, data))
                case "url":
                    return ImagePart(as_string(source.get("url", MISSING), f"{inner}.url", "a URL"))
    return OtherPart(block)


def render_content(content: Content) -> JSON:
    """The content as the API spells it, without texts that say nothing: it refuses those."""
    if isinstance(content, str):
        return content
    return [render_part(part) for part in content if not (isinstance(part, TextPart) and not part.text)]


def render_part(part: Part) -> dict[str, JSON]:
    """A part of a message's content."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image", "source": _source(part.url)}
    return part_for(NAME, part)


def _source(url: str) -> dict[str, JSON]:
    inline = split_data_url(url)
    if inline is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": inline[0], "data": inline[1]}


def read_result(block: Mapping[str, JSON], where: str) -> ToolMessage:
    """The result of a tool call."""
    identity = block.get("tool_use_id", MISSING)
    return ToolMessage(
        read_content(block.get("content"), f"{where}.content"),
        tool_call_id=as_string(identity, f"{where}.tool_use_id", "the id of the call that it answers"),
    )


def render_result(message: ToolMessage) -> dict[str, JSON]:
    """The result of a tool call."""
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": render_content(message.content),
    }


def read_reply(value: JSON, where: str) -> AssistantMessage:
    """An assistant's message: its texts are pieces of one text, cut where a citation begins or ends."""
    if isinstance(value, str):
        return AssistantMessage(value)
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    state: list[Mapping[str, JSON]] = []
    for place, raw in enumerate(as_list(value, where, BLOCKS)):
        inner = f"{where}[{place}]"
        block = as_object(raw, inner, "a content block: an object with a `type`")
        match as_string(block.get("type", MISSING), f"{inner}.type", "the kind of the block"):
            case "text":
                texts.append(as_string(block.get("text", MISSING), f"{inner}.text"))
            case "tool_use":
                calls.append(_call(block, inner))
            case "thinking":
                reasoning.append(as_string(block.get("thinking", MISSING), f"{inner}.thinking"))
                if get_string(block, "signature", inner):
                    state.append(block)
            case _:
                state.append(block)
    return AssistantMessage(
        "".join(texts) if texts else None,
        reasoning_content=BREAK.join(filter(None, reasoning)) or None,
        tool_calls=calls,
        provider_state=tuple(state) or None,
    )


def _call(block: Mapping[str, JSON], where: str) -> ToolCall:
    return ToolCall(
        id=as_string(block.get("id", MISSING), f"{where}.id", "the id of the call"),
        name=as_string(block.get("name", MISSING), f"{where}.name", "the name of the tool"),
        arguments=as_text(as_object(block.get("input", MISSING), f"{where}.input", "the arguments as an object")),
    )


def render_call(call: ToolCall) -> dict[str, JSON]:
    """A tool call."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_object(call.arguments)}


def render_reply(message: AssistantMessage, *, unsigned: bool) -> Iterator[dict[str, JSON]]:
    """The blocks of a reply. `unsigned`: with reasoning that nobody signed, which a client may be shown, and which the
    API would refuse."""
    state = list(state_for(NAME, message))
    yield from state
    if unsigned and message.reasoning_content and not any(block["type"] == "thinking" for block in state):
        yield {"type": "thinking", "thinking": message.reasoning_content, "signature": ""}
    if message.content:
        yield {"type": "text", "text": message.content}
    yield from map(render_call, message.tool_calls)

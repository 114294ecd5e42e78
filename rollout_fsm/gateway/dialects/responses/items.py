"""The items that conversations and answers of OpenAI's Responses are made of.

A call is an item of its own there; consecutive items of the assistant's are one message of the conversation. A call
whose answer the client owes is a tool call, whatever the tool: a shell, a patch, a computer. What the provider did
itself, and reasoning that only it can read, is kept as its state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from attrs import frozen

from rollout_fsm.arguments import as_text
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.fields import MISSING, as_object, as_string, get_list, wrong
from rollout_fsm.gateway.dialects.responses.content import (
    NAME,
    read_content,
    read_output,
    render_content,
    spoken,
)
from rollout_fsm.gateway.dialects.state import state_for
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Message,
    OtherPart,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

BREAK = "\n\n"
"""What stands between two stretches of reasoning."""

Role = Literal["system", "user", "assistant", "tool"]

SYSTEM = frozenset({"additional_tools", "compaction_trigger", "configuration_update"})
USER = frozenset({"mcp_approval_response"})
"""Items that are no message, and say something in the name of these."""

PROVIDER = frozenset({"program", "program_output", "reasoning"})
"""Items of the provider's that look like calls or results."""

_ABOUT = frozenset({"id", "type", "status", "call_id", "caller", "created_by"})
"""Fields of a call that are not its arguments."""


@frozen(kw_only=True)
class Group:
    """Consecutive items that are one message."""

    role: Role
    items: tuple[Mapping[str, JSON], ...]
    start: int
    """Where in the input its first item is."""


def grouped(items: Sequence[JSON], where: str) -> Iterator[Group]:
    """The items as messages. Raises `DialectError`."""
    run: list[Mapping[str, JSON]] = []
    hosted: set[str] = set()
    for place, raw in enumerate(items):
        item = as_object(raw, f"{where}[{place}]", "an item: an object with a `type`, or with `role` and `content`")
        if is_hosted(item):
            hosted.add(str(item.get("call_id")))
        role = _role(item, f"{where}[{place}]", hosted)
        if role == "assistant":
            run.append(item)
            continue
        if run:
            yield Group(role="assistant", items=tuple(run), start=place - len(run))
            run = []
        yield Group(role=role, items=(item,), start=place)
    if run:
        yield Group(role="assistant", items=tuple(run), start=len(items) - len(run))


def _role(item: Mapping[str, JSON], where: str, hosted: set[str]) -> Role:
    kind = kind_of(item, where)
    if kind == "message":
        match item.get("role", MISSING):
            case "user" | "assistant" as role:
                return role
            case "system" | "developer":
                return "system"
            case other:
                raise wrong(f"{where}.role", other, '"system", "developer", "user" or "assistant"')
    if kind == "item_reference":
        raise DialectError(
            f"{where}: this gateway keeps no items: send the item itself, not a reference to it", param=where
        )
    if kind in SYSTEM:
        return "system"
    if kind in USER:
        return "user"
    answers = kind.endswith("_output") and kind not in PROVIDER and item.get("execution") != "server"
    return "tool" if answers and str(item.get("call_id")) not in hosted else "assistant"


def kind_of(item: Mapping[str, JSON], where: str) -> str:
    """The type of an item, which messages and references may leave out."""
    kind = item.get("type")
    if kind is None and "role" not in item and "id" in item:
        return "item_reference"
    return "message" if kind is None else as_string(kind, f"{where}.type", "the kind of the item")


def is_hosted(item: Mapping[str, JSON]) -> bool:
    """Whether a call is answered by the provider itself, in a container of its own or in another way."""
    place = item.get("environment")
    return item.get("execution") == "server" or (
        isinstance(place, dict) and place.get("type") not in (None, "local") and item.get("type") == "shell_call"
    )


def read_group(group: Group, where: str) -> Message:
    """The message that the items are."""
    if group.role == "assistant":
        return read_reply(group.items, where, group.start)
    item, at = group.items[0], f"{where}[{group.start}]"
    if group.role == "tool":
        return _read_result(item, at)
    made = UserMessage if group.role == "user" else SystemMessage
    if kind_of(item, at) != "message":
        return made((OtherPart(item),))
    return made(read_content(item.get("content"), f"{at}.content"))


def _read_result(item: Mapping[str, JSON], where: str) -> ToolMessage:
    named = item.get("call_id") or item.get("id") or MISSING  # of a local shell, the id is the call's
    return ToolMessage(
        read_output(item.get("output", item.get("tools")), f"{where}.output"),
        tool_call_id=as_string(named, f"{where}.call_id", "the id of the call that it answers"),
    )


def read_reply(items: Iterable[Mapping[str, JSON]], where: str, start: int = 0) -> AssistantMessage:
    """The assistant's message that items are."""
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    state: list[Mapping[str, JSON]] = []
    for place, item in enumerate(items, start):
        inner = f"{where}[{place}]"
        kind = kind_of(item, inner)
        if kind == "message":
            texts.append(spoken(item.get("content"), f"{inner}.content"))
        elif kind == "reasoning":
            reasoning.extend(_reasoning(item, inner))
            if item.get("encrypted_content"):
                state.append(item)
        elif is_call(item):
            calls.append(_read_call(item, kind, inner))
        else:
            state.append(item)
    return AssistantMessage(
        "".join(texts) if texts else None,
        reasoning_content=BREAK.join(filter(None, reasoning)) or None,
        tool_calls=calls,
        provider_state=tuple(state) or None,
    )


def _reasoning(item: Mapping[str, JSON], where: str) -> Iterator[str]:
    """What can be read of reasoning: its text, else its summary."""
    for field in ("content", "summary"):
        parts = get_list(item, field, where, "a list of parts")
        for place, raw in enumerate(parts):
            inner = f"{where}.{field}[{place}]"
            part = as_object(raw, inner, "a part: an object with a `text`")
            yield as_string(part.get("text", MISSING), f"{inner}.text")
        if parts:
            return


# Tool calls


def is_call(item: Mapping[str, JSON]) -> bool:
    """Whether it is a call that the client is to answer."""
    kind = item.get("type")
    called = isinstance(kind, str) and kind.endswith("_call") and isinstance(item.get("call_id"), str)
    return called and not is_hosted(item)


def call_fields(item: Mapping[str, JSON]) -> tuple[str, Literal["function", "custom"], str | None]:
    """Name and kind of a call, and the field of its text; None where its arguments are fields of its own."""
    match item.get("type"):
        case "function_call":
            return str(item.get("name") or ""), "function", "arguments"
        case "custom_tool_call":
            return str(item.get("name") or ""), "custom", "input"
        case kind:
            return str(kind).removesuffix("_call"), "function", None


def _read_call(item: Mapping[str, JSON], kind: str, where: str) -> ToolCall:
    name, type_, field = call_fields(item)
    if field is None:
        arguments = as_text({key: value for key, value in item.items() if key not in _ABOUT})
    else:
        name = as_string(item.get("name", MISSING), f"{where}.name", "the name of the tool")
        arguments = as_string(item.get(field, MISSING), f"{where}.{field}", "the arguments as text")
    return ToolCall(id=str(item["call_id"]), name=name, arguments=arguments, type=type_)


def render_call(call: ToolCall) -> dict[str, JSON]:
    """A tool call."""
    if call.type == "custom":
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": call.arguments}
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


# Messages


def render_messages(messages: Sequence[Message], *, custom: set[str] | None = None) -> Iterator[dict[str, JSON]]:
    """The items of a conversation; `custom` holds the ids of calls of custom tools that came before."""
    custom = set() if custom is None else custom
    for message in messages:
        match message:
            case AssistantMessage():
                custom.update(call.id for call in message.tool_calls if call.type == "custom")
                yield from render_reply(message)
            case ToolMessage():
                kind = "custom_tool_call_output" if message.tool_call_id in custom else "function_call_output"
                yield {"type": kind, "call_id": message.tool_call_id, "output": render_content(message.content)}
            case _:
                yield from _render_said(message)


def _render_said(message: SystemMessage | UserMessage) -> Iterator[dict[str, JSON]]:
    if isinstance(message.content, tuple):
        items = [
            dict(part.data) for part in message.content if isinstance(part, OtherPart) and part.type in SYSTEM | USER
        ]
        if items and len(items) == len(message.content):
            yield from items
            return
    yield {"type": "message", "role": message.role, "content": render_content(message.content)}


def render_reply(message: AssistantMessage) -> Iterator[dict[str, JSON]]:
    """The items of a reply, as a request has them; reasoning that is not sealed is not sent back."""
    yield from state_for(NAME, message)
    if message.content:
        yield {"type": "message", "role": "assistant", "content": message.content}
    yield from map(render_call, message.tool_calls)

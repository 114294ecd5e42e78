"""Requests of Anthropic's messages.

A message of a user's may hold the results of tool calls: each becomes a message of its own, before what the user says.
"""

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from rollout_fsm.gateway.dialects import settings
from rollout_fsm.gateway.dialects.content import rewritten, rewritten_content
from rollout_fsm.gateway.dialects.dialect import DialectError
from rollout_fsm.gateway.dialects.fields import (
    MISSING,
    as_list,
    as_object,
    as_string,
    get_flag,
    get_list,
    get_string,
    require_whole,
    wrong,
)
from rollout_fsm.gateway.dialects.messages.blocks import (
    NAME,
    read_content,
    read_reply,
    read_result,
    render_content,
    render_part,
    render_reply,
    render_result,
)
from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.gateway.dialects.settings import Setting, Spelling
from rollout_fsm.gateway.dialects.translation import carried
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Content,
    Message,
    Native,
    Request,
    Sampling,
    SystemMessage,
    Tool,
    ToolMessage,
    UserMessage,
)

MAX_TOKENS = 8192
"""What an answer may have where nothing says how much: the API wants a number."""

SPELLING = Spelling(
    named=frozenset({"model", "messages", "system", "tools", "stream"}),
    settings=(
        Setting("temperature", settings.number, (("temperature",),)),
        Setting("top_p", settings.number, (("top_p",),)),
        Setting("max_tokens", settings.integer, (("max_tokens",),)),
        Setting("stop", settings.texts, (("stop_sequences",),)),
        Setting("reasoning_effort", settings.word, (("output_config", "effort"),)),
    ),
)


def parse_request(body: Mapping[str, JSON], recall: Recall = afresh) -> Request:
    """A request. `max_tokens` may be missing, for requests to count tokens have none. Raises `DialectError`."""
    require_whole(body, "the request body")
    _refuse_thread(body)
    places = list(_places(body))
    messages = recall([[place.role, place.content] for place in places], lambda at: _read(places[at]))
    tools = [_tool(raw, f"tools[{place}]") for place, raw in enumerate(get_list(body, "tools", "", "a list of tools"))]
    return Request(
        messages=messages,
        tools=tuple(tool for tool in tools if tool is not None),
        model=get_string(body, "model"),
        sampling=SPELLING.read(body),
        native=Native(dialect=NAME, body=body, messages=messages),
    )


def _refuse_thread(body: Mapping[str, JSON]) -> None:
    thread = body.get("thread")
    if isinstance(thread, dict) and thread.get("type") == "continue":
        raise DialectError(
            "thread: this gateway keeps no conversation: send all of its messages, not the id of the last one",
            param="thread",
        )


def wants_stream(body: Mapping[str, JSON]) -> bool:
    """Whether the answer is wanted as a stream. Raises `DialectError`."""
    require_whole(body, "the request body")
    return bool(get_flag(body, "stream"))


# Messages in a body


@frozen(kw_only=True)
class _Place:
    """Where one message is in a body: all of the content at `where`, or the one block of it that is a result."""

    role: str
    where: str
    content: JSON
    message: int | None = None
    """Which of the body's messages; None for the instructions."""
    block: int | None = None
    """Which of its blocks; None for all, but for results of tool calls."""


def _places(body: Mapping[str, JSON]) -> Iterator[_Place]:
    system = body.get("system")
    if system:
        yield _Place(role="system", where="system", content=system)
    given = as_list(body.get("messages", MISSING), "messages", "a list with at least one message")
    if not given:
        raise wrong("messages", given, "a list with at least one message")
    for at, raw in enumerate(given):
        where = f"messages[{at}]"
        message = as_object(raw, where, "a message: an object with `role` and `content`")
        role = message.get("role", MISSING)
        if role not in ("user", "assistant", "system"):
            raise wrong(f"{where}.role", role, '"user", "assistant" or "system"')
        content = message.get("content")
        blocks = content if role == "user" and isinstance(content, list) else []
        results = [place for place, block in enumerate(blocks) if _is_result(block)]
        for place in results:
            inner = f"{where}.content[{place}]"
            yield _Place(role="tool", where=inner, content=blocks[place], message=at, block=place)
        if len(results) < len(blocks) or not results:
            said = [block for block in blocks if not _is_result(block)] if results else content
            yield _Place(role=str(role), where=f"{where}.content", content=said, message=at)


def _is_result(block: JSON) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _read(place: _Place) -> Message:
    match place.role:
        case "tool":
            return read_result(as_object(place.content, place.where, "a result"), place.where)
        case "assistant":
            return read_reply(place.content, place.where)
        case "system":
            return SystemMessage(read_content(place.content, place.where))
    return UserMessage(read_content(place.content, place.where))


def _rewrite(native: Native, messages: Sequence[Message], positions: Sequence[int]) -> dict[str, JSON]:
    """The fields of the body in which messages are, with those at these positions rewritten."""
    places = list(_places(native.body))
    written = list(as_list(native.body["messages"], "messages", "a list"))
    system = native.body.get("system")
    for position in positions:
        place, old, new = places[position], native.messages[position], messages[position]
        if place.message is None:
            system = rewritten_content(system, _content(old), _content(new), render_part)
            continue
        raw = as_object(written[place.message], place.where, "a message")
        written[place.message] = {**raw, "content": _rewritten(raw.get("content"), place, old, new)}
    return {"messages": written, **({"system": system} if system is not None else {})}


def _rewritten(content: JSON, place: _Place, old: Message, new: Message) -> JSON:
    blocks = content if isinstance(content, list) else []
    if isinstance(new, AssistantMessage):
        return list(render_reply(new, unsigned=False))
    if place.block is not None:
        block = as_object(blocks[place.block], place.where, "a result")
        said = rewritten_content(block.get("content"), _content(old), _content(new), render_part)
        return [*blocks[: place.block], {**block, "content": said}, *blocks[place.block + 1 :]]
    said = rewritten_content(place.content, _content(old), _content(new), render_part)
    results = [block for block in blocks if _is_result(block)]
    if not results:
        return said
    return [*results, *(said if isinstance(said, list) else [{"type": "text", "text": said}])]


def _content(message: Message) -> Content:
    return message.content or ""


# Rendering


def render_request(request: Request, *, model: str, sampling: Sampling, stream: bool) -> dict[str, JSON]:
    """A request body; see `Dialect`."""
    native = request.native
    positions = rewritten(request) if native is not None and native.dialect == NAME else None
    if native is not None and positions is not None:
        body = SPELLING.change(native.body, request.sampling, sampling)
        if positions:
            body |= _rewrite(native, request.messages, positions)
    else:
        body = {"messages": []} | _conversation(request.messages)
        if request.tools:
            body["tools"] = [_render_tool(tool, f"tools[{place}]") for place, tool in enumerate(request.tools)]
        body |= SPELLING.write(carried(request, sampling, NAME))
        body.setdefault("max_tokens", MAX_TOKENS)
    body["model"] = model
    if stream:
        body["stream"] = True
    elif body.get("stream"):
        del body["stream"]
    return body


def _conversation(messages: Sequence[Message]) -> dict[str, JSON]:
    opening = 0
    while opening < len(messages) and isinstance(messages[opening], SystemMessage):
        opening += 1
    system = [text for message in messages[:opening] if (text := message.text)]
    body: dict[str, JSON] = {}
    if len(system) == 1:
        body["system"] = system[0]
    elif system:
        body["system"] = [{"type": "text", "text": text} for text in system]
    body["messages"] = list(_turns(messages[opening:]))
    return body


def _turns(messages: Sequence[Message]) -> Iterator[JSON]:
    """The messages as the API takes them: results of calls stand in the user's message that follows them, and what
    says nothing is left out, for it would be refused."""
    results: list[JSON] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            results.append(render_result(message))
            continue
        if isinstance(message, AssistantMessage):
            said: JSON = list(render_reply(message, unsigned=False))
        else:
            said = render_content(message.content)
        if results and isinstance(message, UserMessage):
            said = [*results, *(said if isinstance(said, list) else _texts(said))]
        elif results:
            yield {"role": "user", "content": results}
        results = []
        if said:
            yield {"role": message.role, "content": said}
    if results:
        yield {"role": "user", "content": results}


def _texts(said: JSON) -> list[JSON]:
    return [{"type": "text", "text": said}] if said else []


# Tools


def _tool(raw: JSON, where: str) -> Tool | None:
    """A tool of the caller's; None for one of the provider's own, which only the native body has."""
    tool = as_object(raw, where, "a tool: an object with `name` and `input_schema`")
    if get_string(tool, "type", where) not in (None, "custom"):
        return None
    schema = tool.get("input_schema", MISSING)
    return Tool(
        name=as_string(tool.get("name", MISSING), f"{where}.name", "the tool's name"),
        description=get_string(tool, "description", where) or "",
        parameters=as_object(schema, f"{where}.input_schema", "a JSON schema"),
        strict=get_flag(tool, "strict", where),
    )


def _render_tool(tool: Tool, where: str) -> dict[str, JSON]:
    if tool.format is not None:
        raise DialectError(
            f"{where}: {tool.name!r} takes free text, and the messages API has no such tools: give it a JSON schema",
            param=where,
        )
    described: dict[str, JSON] = {"description": tool.description} if tool.description else {}
    strict: dict[str, JSON] = {} if tool.strict is None else {"strict": tool.strict}
    schema: dict[str, JSON] = {"type": "object", **tool.parameters}
    return {"name": tool.name, **described, "input_schema": schema, **strict}

"""Requests of OpenAI's Responses. What the provider would have to remember is refused: the gateway keeps nothing."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

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
from rollout_fsm.gateway.dialects.recall import Recall, afresh
from rollout_fsm.gateway.dialects.responses.content import NAME, render_part
from rollout_fsm.gateway.dialects.responses.items import (
    Group,
    grouped,
    kind_of,
    read_group,
    render_messages,
    render_reply,
)
from rollout_fsm.gateway.dialects.settings import Setting, Spelling
from rollout_fsm.gateway.dialects.translation import carried
from rollout_fsm.messages import (
    JSON,
    AssistantMessage,
    Content,
    ImagePart,
    Message,
    Native,
    Request,
    Sampling,
    SystemMessage,
    Tool,
    UserMessage,
)

STATEFUL: Mapping[str, str] = {
    "previous_response_id": "send the whole conversation as `input`, not the id of the last response",
    "conversation": "send the whole conversation as `input`, not the id of one that is stored",
    "background": "ask for the answer itself, whole or as a stream",
}
"""What would need a memory, and what to do without it."""

SEALED = "reasoning.encrypted_content"
"""What to ask for so that reasoning can be handed back to a provider that keeps nothing."""

SPELLING = Spelling(
    named=frozenset({"model", "input", "instructions", "tools", "stream", "stream_options", *STATEFUL}),
    settings=(
        Setting("temperature", settings.number, (("temperature",),)),
        Setting("top_p", settings.number, (("top_p",),)),
        Setting("max_tokens", settings.integer, (("max_output_tokens",),)),
        Setting("reasoning_effort", settings.word, (("reasoning", "effort"),)),
    ),
)


def parse_request(body: Mapping[str, JSON], recall: Recall = afresh) -> Request:
    """A request. Raises `DialectError`, also for what refers to a conversation that is not in it."""
    require_whole(body, "the request body")
    for field, instead in STATEFUL.items():
        if body.get(field):
            raise DialectError(f"{field}: this gateway keeps nothing between requests: {instead}", param=field)
    made_of, readers = zip(*_conversation(body), strict=True)
    messages = recall(made_of, lambda at: readers[at]())
    tools = _tools(get_list(body, "tools", "", "a list of tools"), "tools")
    return Request(
        messages=messages,
        tools=tuple(tools),
        model=get_string(body, "model"),
        sampling=SPELLING.read(body),
        native=Native(dialect=NAME, body=body, messages=messages),
    )


def wants_stream(body: Mapping[str, JSON]) -> bool:
    """Whether the answer is wanted as a stream. Raises `DialectError`."""
    require_whole(body, "the request body")
    return bool(get_flag(body, "stream"))


def _conversation(body: Mapping[str, JSON]) -> Iterator[tuple[JSON, Callable[[], Message]]]:
    """What each message is made from, and what makes it. Raises `DialectError`."""
    if instructions := get_string(body, "instructions"):
        yield ["instructions", instructions], partial(SystemMessage, instructions)
    given = body.get("input", MISSING)
    if isinstance(given, str):
        yield ["input", given], partial(UserMessage, given)
        return
    items = as_list(given, "input", "a string, or a list with at least one item")
    if not items:
        raise wrong("input", items, "a string, or a list with at least one item")
    for group in grouped(items, "input"):
        yield [group.role, *map(dict, group.items)], partial(read_group, group, "input")


# Rewriting


def _rewrite(native: Native, messages: Sequence[Message], positions: Sequence[int]) -> dict[str, JSON]:
    """The fields of the body in which messages are, with those at these positions rewritten."""
    body: dict[str, JSON] = {}
    given, opening = native.body["input"], 1 if native.body.get("instructions") else 0
    changed = {position - opening: messages[position] for position in positions}
    if opening and -1 in changed:
        body["instructions"] = messages[0].text
    if isinstance(given, str):
        if 0 in changed:
            new = changed[0].content
            body["input"] = new if isinstance(new, str) else list(render_messages([changed[0]]))
        return body
    written: list[JSON] = []
    for place, group in enumerate(grouped(as_list(given, "input", "a list of items"), "input")):
        if place in changed:
            written.extend(_rewritten(group, native.messages[place + opening], changed[place]))
        else:
            written.extend(dict(item) if not isinstance(item, dict) else item for item in group.items)
    return {**body, "input": written}


def _rewritten(group: Group, old: Message, new: Message) -> list[JSON]:
    if isinstance(old, AssistantMessage) or isinstance(new, AssistantMessage):
        return list(render_reply(new)) if isinstance(new, AssistantMessage) else list(render_messages([new]))
    item = group.items[0]
    if group.role == "tool":
        return [{**item, "output": _rewritten_output(item.get("output"), old.content, new.content)}]
    if kind_of(item, "input") != "message":
        return list(render_messages([new]))
    return [{**item, "content": rewritten_content(item.get("content"), old.content, new.content, render_part)}]


def _rewritten_output(native: JSON, old: Content, new: Content) -> JSON:
    """A result that was read as JSON is JSON again, if it still is."""
    match new:
        case str() if isinstance(old, str) and not isinstance(native, str | None):
            try:
                value: JSON = json.loads(new)
            except ValueError:
                return new
            return value
        case (ImagePart(url=url),) if isinstance(native, dict):
            return {**native, "image_url": url}
    return rewritten_content(native, old, new, render_part)


# Rendering


def render_request(request: Request, *, model: str, sampling: Sampling, stream: bool) -> dict[str, JSON]:
    """A request body; see `Dialect`."""
    if sampling.stop:
        raise DialectError(
            "stop: the Responses API has no stop sequences; an endpoint that takes them all the same is given them in "
            "the run's `sampling.extra`",
            param="stop",
        )
    native = request.native
    positions = rewritten(request) if native is not None and native.dialect == NAME else None
    if native is not None and positions is not None:
        body = SPELLING.change(native.body, request.sampling, sampling)
        if positions:
            body |= _rewrite(native, request.messages, positions)
    else:
        body = _typed(request, sampling)
    body["model"] = model
    if stream:
        body["stream"] = True
        return body
    if body.get("stream"):
        del body["stream"]
    body.pop("stream_options", None)
    return body


def _typed(request: Request, sampling: Sampling) -> dict[str, JSON]:
    messages = request.messages
    body: dict[str, JSON] = {}
    if messages and isinstance(messages[0], SystemMessage):
        body["instructions"] = messages[0].text
        messages = messages[1:]
    body["input"] = list(render_messages(messages))
    if request.tools:
        body["tools"] = [render_tool(tool) for tool in request.tools]
    body |= SPELLING.write(carried(request, sampling, NAME))
    body.setdefault("store", False)
    if sampling.reasoning_effort is not None:
        body.setdefault("include", [SEALED])
    return body


# Tools


def _tools(given: Sequence[JSON], where: str) -> list[Tool]:
    """The tools of the caller's; the provider's own, only the native body has."""
    tools = []
    for place, raw in enumerate(given):
        inner = f"{where}[{place}]"
        tool = as_object(raw, inner, "a tool: an object with a `type`")
        match as_string(tool.get("type", MISSING), f"{inner}.type", "the kind of the tool"):
            case "function":
                parameters = tool.get("parameters")
                schema = {} if parameters is None else as_object(parameters, f"{inner}.parameters", "a JSON schema")
                tools.append(_tool(tool, inner, parameters=schema, strict=get_flag(tool, "strict", inner)))
            case "custom":
                format = as_object(tool.get("format") or {"type": "text"}, f"{inner}.format", "an object")
                tools.append(_tool(tool, inner, format=format))
            case "namespace":
                tools.extend(_tools(get_list(tool, "tools", inner, "a list of tools"), f"{inner}.tools"))
    return tools


def _tool(
    tool: Mapping[str, JSON],
    where: str,
    *,
    parameters: Mapping[str, JSON] | None = None,
    strict: bool | None = None,
    format: Mapping[str, JSON] | None = None,
) -> Tool:
    return Tool(
        name=as_string(tool.get("name", MISSING), f"{where}.name", "the tool's name"),
        description=get_string(tool, "description", where) or "",
        parameters=parameters or {},
        strict=strict,
        format=format,
    )


def render_tool(tool: Tool) -> dict[str, JSON]:
    """A tool. The API takes a function for strict unless it is told otherwise."""
    described: dict[str, JSON] = {"description": tool.description} if tool.description else {}
    if tool.format is not None:
        return {"type": "custom", "name": tool.name, **described, "format": dict(tool.format)}
    return {
        "type": "function",
        "name": tool.name,
        **described,
        "parameters": dict(tool.parameters),
        "strict": bool(tool.strict),
    }
